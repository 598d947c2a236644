/* The clock, engines, and what is done when the clock has come to a moment.
 *
 * The virtual clock is the host's: each call that issues work takes what the profile says, and waiting moves it to the
 * moment waited for. What the host really takes is not counted, so that equal programs take equal times. The real clock
 * is CLOCK_MONOTONIC, and waiting sleeps.
 *
 * An engine does one thing at a time, whatever is ready first: work that waits for another stream leaves it to others
 * meanwhile.
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE ((size_t)4096)

/* ---- the clock ---- */

static nanoseconds virtual_now = 1000000000;

nanoseconds in_nanoseconds(double seconds) { return (nanoseconds)(seconds * 1e9 + 0.5); }

nanoseconds clock_now(void) {
  if (!settings.real_clock) return virtual_now;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (nanoseconds)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_until(nanoseconds moment) {
  struct timespec until = {moment / 1000000000, moment % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) {
  }
}

void spend(nanoseconds lasts) {
  if (lasts <= 0) return;
  if (!settings.real_clock) {
    virtual_now += lasts;
    return;
  }
  release_lock();
  sleep_until(clock_now() + lasts);
  hold_lock();
}

void host_works(nanoseconds lasts) {
  if (!settings.real_clock) virtual_now += lasts;
}

static void settle_until(nanoseconds moment);

void wait_until(nanoseconds moment) {
  if (settings.real_clock) {
    release_lock();
    if (moment > clock_now()) sleep_until(moment);
    hold_lock();
  } else if (moment > virtual_now) {
    virtual_now = moment;
  }
  settle_until(clock_now());
}

/* ---- what is done at a moment ---- */

struct effect {
  nanoseconds moment;
  void *to;
  const void *from;
  size_t bytes;
  int value;
  void (*function)(void *);
  void *data;
  struct effect *next;
};
static struct effect *effects; /* by moment, of equal ones the first issued first */

static void add(struct effect effect) {
  struct effect **link = &effects;
  while (*link && (*link)->moment <= effect.moment) link = &(*link)->next;
  struct effect *added = malloc(sizeof *added);
  *added = effect;
  added->next = *link;
  *link = added;
}

/* Pages that hold these bytes already are left alone: memory that nobody has written is all zeros and has no page of
 * the host behind it, and copies of what kernels would have computed must not make the host back it. */
static void move(const struct effect *effect) {
  static char value[PAGE];
  if (!effect->from) memset(value, effect->value, sizeof value);
  char *target = bytes_at(effect->to);
  const char *source = effect->from ? bytes_at(effect->from) : NULL;
  for (size_t done = 0, piece; done < effect->bytes; done += piece) {
    char *to = target + done;
    piece = PAGE - (uintptr_t)to % PAGE;
    if (piece > effect->bytes - done) piece = effect->bytes - done;
    const char *from = source ? source + done : value;
    if (memcmp(to, from, piece)) memmove(to, from, piece);
  }
}

/* A function of the host runs without the lock. What is behind it is not due before it returns, for no thread. */
static bool running;
static pthread_t runner;
static nanoseconds running_since;

static void do_first(void) {
  struct effect first = *effects;
  free(effects);
  effects = first.next;
  if (!first.function) {
    move(&first);
    return;
  }
  running = true;
  runner = pthread_self();
  running_since = first.moment;
  release_lock();
  first.function(first.data);
  hold_lock();
  running = false;
  tell_change();
}

static void settle_until(nanoseconds moment) {
  for (;;) {
    bool due = effects && effects->moment <= moment;
    if (!running) {
      if (!due) return;
      do_first();
    } else if (pthread_equal(runner, pthread_self()) || !(due || running_since <= moment)) {
      return;
    } else {
      await_change();
    }
  }
}

void settle(void) {
  /* Who only looks in does not wait for another thread's function, which may need what this one holds. */
  if (effects && !running) settle_until(clock_now());
}

bool is_done(nanoseconds moment) { return moment <= clock_now() && !(running && running_since <= moment); }

void settle_before_kernel(nanoseconds moment) { settle_until(moment - 1); }

void move_at(nanoseconds moment, void *to, const void *from, int value, size_t bytes) {
  struct effect effect = {.moment = moment, .to = to, .from = from, .value = value, .bytes = bytes};
  if (!bytes || record_move(to, from, value, bytes)) return;
  if (settings.delayed_copies) {
    add(effect);
    return;
  }
  /* Functions of the host that come before it may write what it reads. */
  settle_until(moment);
  move(&effect);
}

void call_at(nanoseconds moment, void (*function)(void *), void *data) {
  add((struct effect){.moment = moment, .function = function, .data = data});
}

static bool overlap(const void *one, size_t one_bytes, const void *other, size_t other_bytes) {
  return one && (const char *)one < (const char *)other + other_bytes &&
         (const char *)other < (const char *)one + one_bytes;
}

void settle_bytes(const void *address, size_t bytes) {
  nanoseconds last = -1;
  for (struct effect *each = effects; each; each = each->next)
    if (!each->function && (overlap(each->to, each->bytes, address, bytes) ||
                            overlap(each->from, each->bytes, address, bytes)))
      last = each->moment;
  if (last >= 0) settle_until(last);
}

/* ---- engines ---- */

struct interval {
  nanoseconds begin, end;
};
struct busy {
  struct interval *at; /* apart from each other, by time */
  size_t count, room;
};
static struct busy engines[MOST_GPUS][ENGINES];

nanoseconds occupy(int gpu, enum engine engine, nanoseconds ready, nanoseconds lasts) {
  struct busy *busy = &engines[gpu][engine];
  if (!lasts) return ready;
  nanoseconds past = clock_now();
  size_t gone = 0;
  while (gone < busy->count && busy->at[gone].end < past) gone++;
  if (gone) {
    busy->count -= gone;
    memmove(busy->at, busy->at + gone, busy->count * sizeof *busy->at);
  }
  size_t where = busy->count;
  while (where && busy->at[where - 1].end > ready) where--;
  nanoseconds begin = ready;
  for (; where < busy->count && busy->at[where].begin < begin + lasts; where++)
    if (busy->at[where].end > begin) begin = busy->at[where].end;
  if (where && busy->at[where - 1].end == begin) {
    busy->at[where - 1].end = begin + lasts;
    return begin;
  }
  if (busy->count == busy->room) {
    busy->room = busy->room ? 2 * busy->room : 16;
    busy->at = realloc(busy->at, busy->room * sizeof *busy->at);
  }
  memmove(busy->at + where + 1, busy->at + where, (busy->count - where) * sizeof *busy->at);
  busy->at[where] = (struct interval){begin, begin + lasts};
  busy->count++;
  return begin;
}

/* ---- how long kernels last within an operator ---- */

static __thread int operator_depth;
static __thread nanoseconds operator_left;

nanoseconds kernel_lasts(nanoseconds alone) {
  if (!operator_depth) return alone;
  nanoseconds lasts = operator_left;
  operator_left = 0;
  return lasts;
}

EXPORT void pretend_operator_begin(double seconds) {
  if (!operator_depth++) operator_left = in_nanoseconds(seconds);
}
EXPORT void pretend_operator_end(void) {
  if (operator_depth) operator_depth--;
}

/* What the host has come to, whether or not there is a GPU to call. */
EXPORT int64_t pretend_clock_ns(void) {
  int64_t now = 0;
  hold_lock();
  now = clock_now();
  release_lock();
  return now;
}
