/* How a call is refused, how long work takes, and the libraries of which nothing is on the pretended GPU.
 *
 * Of the latter only the calls are refused that every use of them begins with: without the handle or the plan which
 * these would make, nothing else of the library can be called.
 */
#include "libraries.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NAMES 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *said[MOST_NAMES];
static int names;
static __thread char sentence[256];
static __thread int news;

double setting(const char *name) {
  char variable[64];
  snprintf(variable, sizeof variable, "VDNNSIM_PRETEND_%s", name);
  const char *text = getenv(variable);
  return text ? strtod(text, NULL) : 0;
}

/* Of one kernel, which is launched however little it does. */
double seconds_of_flop(double flop) { return setting("LAUNCH_S") + (flop > 0 ? flop / setting("FLOP_PER_S") : 0); }
double seconds_of_bytes(double bytes) { return bytes > 0 ? bytes / setting("DRAM_BYTES_PER_S") : 0; }

static int first_time(const char *call) {
  pthread_mutex_lock(&lock);
  int first = names < MOST_NAMES;
  for (int each = 0; each < names; each++)
    if (!strcmp(said[each], call)) first = 0;
  if (first) said[names++] = call;
  pthread_mutex_unlock(&lock);
  return first;
}

int refuse_because(const char *call, int status, const char *reason) {
  snprintf(sentence, sizeof sentence, "%s: %s", call, reason);
  news = 1;
  if (first_time(call)) {
    fprintf(stderr, "vdnnsim: %s\n", sentence);
    pretend_log("%s", sentence);
  }
  return status;
}

int refuse(const char *call, int status) {
  return refuse_because(call, status, "this call is not on the pretended GPU");
}

const char *last_refusal(void) {
  const char *answer = news ? sentence : "";
  news = 0;
  return answer;
}

#define CUFFT_NOT_SUPPORTED 16
REFUSED(cufftCreate, CUFFT_NOT_SUPPORTED)
REFUSED(cufftPlan1d, CUFFT_NOT_SUPPORTED)
REFUSED(cufftPlan2d, CUFFT_NOT_SUPPORTED)
REFUSED(cufftPlan3d, CUFFT_NOT_SUPPORTED)
REFUSED(cufftPlanMany, CUFFT_NOT_SUPPORTED)

#define CUSOLVER_STATUS_NOT_INITIALIZED 1 /* PyTorch has no name for what is not supported */
REFUSED(cusolverDnCreate, CUSOLVER_STATUS_NOT_INITIALIZED)
REFUSED(cusolverSpCreate, CUSOLVER_STATUS_NOT_INITIALIZED)

#define CUSPARSE_STATUS_NOT_SUPPORTED 10
REFUSED(cusparseCreate, CUSPARSE_STATUS_NOT_SUPPORTED)
REFUSED(cusparseLtInit, CUSPARSE_STATUS_NOT_SUPPORTED)

#define CURAND_STATUS_INITIALIZATION_FAILED 203
REFUSED(curandCreateGenerator, CURAND_STATUS_INITIALIZATION_FAILED)

/* cuFile answers with an error of its own and one of the driver, and counts its own from 5000. */
typedef struct {
  int error, driver_error;
} file_error;
#define CU_FILE_DEVICE_NOT_SUPPORTED 5009
#define REFUSED_FILE(call)                                                                               \
  EXPORT file_error refused_##call(void) __asm__(#call);                                                 \
  file_error refused_##call(void) { return (file_error){refuse(#call, CU_FILE_DEVICE_NOT_SUPPORTED), 0}; }
REFUSED_FILE(cuFileDriverOpen)
REFUSED_FILE(cuFileHandleRegister)
REFUSED_FILE(cuFileBufRegister)
