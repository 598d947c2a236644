/* What all files share: the settings of the card, counts of calls, and the one lock. */
#include "runtime.h"

#include <pthread.h>

struct settings settings;
int64_t counts[COUNTS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void hold_lock(void) { pthread_mutex_lock(&lock); }
void release_lock(void) { pthread_mutex_unlock(&lock); }
void await_change(void) { pthread_cond_wait(&changed, &lock); }
void tell_change(void) { pthread_cond_broadcast(&changed); }
