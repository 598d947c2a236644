/* The clock, streams and events, and what happens when a stream comes to it.
 *
 * Work is put on a stream when the host issues it, and its begin and end are known at once: it begins when the host has
 * issued it, its stream has come to it and its engine is free. An engine does one thing at a time, whatever is ready
 * first: work that waits for another stream leaves it to others meanwhile.
 *
 * The virtual clock is the host's: each call that issues work takes what the profile says, and waiting moves it to the
 * moment waited for. What the host really takes is not counted, so that equal programs take equal times. The real clock
 * is CLOCK_MONOTONIC, and waiting sleeps.
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE ((size_t)4096)
/* What a question takes, as whether an event has come: a loop that asks until it has must end. Assumed. */
#define QUESTION ((nanoseconds)1000)
/* cudaEventElapsedTime resolves half a microsecond, says its documentation. */
#define EVENT_RESOLUTION ((nanoseconds)500)

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
  pause_lock();
  sleep_until(clock_now() + lasts);
  resume_lock();
}

void wait_until(nanoseconds moment) {
  if (settings.real_clock) {
    pause_lock();
    if (moment > clock_now()) sleep_until(moment);
    resume_lock();
  } else if (moment > virtual_now) {
    virtual_now = moment;
  }
  settle();
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
  for (size_t done = 0, piece; done < effect->bytes; done += piece) {
    char *to = (char *)effect->to + done;
    piece = PAGE - (uintptr_t)to % PAGE;
    if (piece > effect->bytes - done) piece = effect->bytes - done;
    const char *from = effect->from ? (const char *)effect->from + done : value;
    if (memcmp(to, from, piece)) memmove(to, from, piece);
  }
}

static void do_first(void) {
  struct effect first = *effects;
  free(effects);
  effects = first.next;
  if (!first.function) {
    move(&first);
    return;
  }
  pause_lock();
  first.function(first.data);
  resume_lock();
}

static void settle_until(nanoseconds moment) {
  while (effects && effects->moment <= moment) do_first();
}

void settle(void) {
  if (effects) settle_until(clock_now());
}

void settle_before_kernel(nanoseconds moment) { settle_until(moment - 1); }

void move_at(nanoseconds moment, void *to, const void *from, int value, size_t bytes) {
  struct effect effect = {.moment = moment, .to = to, .from = from, .value = value, .bytes = bytes};
  if (!bytes) return;
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

/* Take the first gap from a moment on; returns its begin. */
static nanoseconds occupy(struct busy *busy, nanoseconds ready, nanoseconds lasts) {
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

/* ---- handles, which are never valid again once given back ---- */

/* PyTorch takes a handle whose last bit is set for one of its own streams. */
#define KIND_BITS 8
#define SLOT_BITS 20
struct table {
  struct entry {
    void *item;
    uint64_t generation;
  } *entries;
  size_t count, room;
  size_t *unused, unused_count;
  uintptr_t kind;
};

static void *handle_of(const struct table *table, size_t slot) {
  return (void *)(table->kind | slot << KIND_BITS | table->entries[slot].generation << (KIND_BITS + SLOT_BITS));
}

static size_t slot_of(const void *handle) { return (uintptr_t)handle >> KIND_BITS & ((1 << SLOT_BITS) - 1); }

static void *item_of(const struct table *table, const void *handle) {
  size_t slot = slot_of(handle);
  if (slot >= table->count || handle_of(table, slot) != handle) return NULL;
  return table->entries[slot].item;
}

/* NULL where there are too many. */
static void *add_item(struct table *table, void *item) {
  size_t slot;
  if (table->unused_count) {
    slot = table->unused[--table->unused_count];
  } else {
    if (table->count == (size_t)1 << SLOT_BITS) return NULL;
    if (table->count == table->room) {
      table->room = table->room ? 2 * table->room : 64;
      table->entries = realloc(table->entries, table->room * sizeof *table->entries);
      table->unused = realloc(table->unused, table->room * sizeof *table->unused);
    }
    slot = table->count++;
    table->entries[slot].generation = 0;
  }
  table->entries[slot].item = item;
  return handle_of(table, slot);
}

static void remove_item(struct table *table, const void *handle) {
  size_t slot = slot_of(handle);
  free(table->entries[slot].item);
  table->entries[slot].item = NULL;
  table->entries[slot].generation++;
  table->unused[table->unused_count++] = slot;
}

/* ---- streams ---- */

struct stream {
  int gpu, priority;
  bool blocking; /* waits for the default stream, and it for this one */
  nanoseconds tail;
};
static struct stream default_streams[MOST_GPUS];
static struct table streams = {.kind = 16};
static const int GREATEST_PRIORITY = -5;

struct stream *stream_of(cudaStream_t handle) {
  /* The stream of each thread is its GPU's default stream here: PyTorch asks for none. */
  if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    int gpu = current_gpu();
    default_streams[gpu].gpu = gpu;
    default_streams[gpu].blocking = true;
    return &default_streams[gpu];
  }
  return item_of(&streams, handle);
}

int stream_gpu(const struct stream *stream) { return stream->gpu; }

/* When all work is done that a stream waits for. */
static nanoseconds reached(const struct stream *stream) {
  nanoseconds last = stream->tail;
  const struct stream *standard = &default_streams[stream->gpu];
  if (stream != standard) return stream->blocking && standard->tail > last ? standard->tail : last;
  for (size_t slot = 0; slot < streams.count; slot++) {
    const struct stream *each = streams.entries[slot].item;
    if (each && each->gpu == stream->gpu && each->blocking && each->tail > last) last = each->tail;
  }
  return last;
}

nanoseconds put(struct stream *stream, enum engine engine, nanoseconds lasts) {
  if (!settings.real_clock) virtual_now += settings.issue;
  nanoseconds begin = clock_now(), before = reached(stream);
  if (before > begin) begin = before;
  if (engine != ENGINE_NONE) begin = occupy(&engines[stream->gpu][engine], begin, lasts);
  stream->tail = begin + lasts;
  return stream->tail;
}

nanoseconds all_done(int gpu) {
  nanoseconds last = 0;
  for (int each = 0; each < settings.gpus; each++)
    if ((gpu < 0 || each == gpu) && default_streams[each].tail > last) last = default_streams[each].tail;
  for (size_t slot = 0; slot < streams.count; slot++) {
    const struct stream *each = streams.entries[slot].item;
    if (each && (gpu < 0 || each->gpu == gpu) && each->tail > last) last = each->tail;
  }
  return last;
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
  resume_lock();
  now = clock_now();
  pause_lock();
  return now;
}

EXPORT void pretend_spend(double seconds) {
  if (enter()) return;
  spend(in_nanoseconds(seconds));
  settle();
  leave(cudaSuccess);
}

EXPORT void pretend_busy(void *stream, double seconds) {
  if (enter_context()) return;
  struct stream *on = stream_of(stream);
  if (on) put(on, ENGINE_KERNELS, kernel_lasts(in_nanoseconds(seconds)));
  leave(cudaSuccess);
}

/* ---- the API of streams ---- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = GREATEST_PRIORITY;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *handle, unsigned flags, int priority) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct stream *stream = calloc(1, sizeof *stream);
  stream->gpu = current_gpu();
  stream->blocking = !(flags & cudaStreamNonBlocking);
  stream->priority = priority > 0 ? 0 : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
  *handle = add_item(&streams, stream);
  return leave(*handle ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }

/* What was put on it goes on, and its engine is taken: only the stream is gone. */
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  cudaError_t error = enter();
  if (error) return error;
  if (!item_of(&streams, handle)) return leave(cudaErrorInvalidResourceHandle);
  remove_item(&streams, handle);
  return leave(cudaSuccess);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
  cudaError_t error = enter();
  if (error) return error;
  struct stream *stream = stream_of(handle);
  if (stream) *priority = stream->priority;
  return leave(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct stream *stream = stream_of(handle);
  if (stream) wait_until(reached(stream));
  return leave(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaDeviceSynchronize(void) {
  cudaError_t error = enter_context();
  if (error) return error;
  wait_until(all_done(current_gpu()));
  return leave(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct stream *stream = stream_of(handle);
  if (!stream) return leave(cudaErrorInvalidResourceHandle);
  if (!settings.real_clock) virtual_now += QUESTION;
  settle();
  return leave(reached(stream) <= clock_now() ? cudaSuccess : cudaErrorNotReady);
}

struct callback {
  cudaStream_t stream;
  cudaStreamCallback_t function;
  void *data;
};
static void call_back(void *given) {
  struct callback callback = *(struct callback *)given;
  free(given);
  callback.function(callback.stream, cudaSuccess, callback.data);
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function, void *data, unsigned flags) {
  (void)flags;
  struct callback *callback = malloc(sizeof *callback);
  *callback = (struct callback){handle, function, data};
  return cudaLaunchHostFunc(handle, call_back, callback);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *data) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct stream *stream = stream_of(handle);
  if (stream) call_at(put(stream, ENGINE_NONE, 0), function, data);
  return leave(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* ---- capture of graphs: none ever is, and beginning one is refused with all other calls that are not there ---- */

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
  (void)handle;
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count) {
  (void)edges;
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, size_t *count) {
#endif
  (void)graph;
  (void)nodes;
  if (id) *id = 0;
  if (count) *count = 0;
  return cudaStreamIsCapturing(handle, status);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  static __thread enum cudaStreamCaptureMode now = cudaStreamCaptureModeGlobal;
  enum cudaStreamCaptureMode before = now;
  now = *mode;
  *mode = before;
  return cudaSuccess;
}

/* ---- the API of events ---- */

struct event {
  bool recorded, timed;
  nanoseconds moment;
};
static struct table events = {.kind = 32};

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *handle, unsigned flags) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct event *event = calloc(1, sizeof *event);
  event->timed = !(flags & cudaEventDisableTiming);
  *handle = add_item(&events, event);
  return leave(*handle ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaEventCreate(cudaEvent_t *handle) { return cudaEventCreateWithFlags(handle, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  cudaError_t error = enter();
  if (error) return error;
  if (!item_of(&events, handle)) return leave(cudaErrorInvalidResourceHandle);
  remove_item(&events, handle);
  return leave(cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t on, unsigned flags) {
  (void)flags;
  cudaError_t error = enter_context();
  if (error) return error;
  struct event *event = item_of(&events, handle);
  struct stream *stream = stream_of(on);
  if (!event || !stream) return leave(cudaErrorInvalidResourceHandle);
  event->moment = put(stream, ENGINE_NONE, 0);
  event->recorded = true;
  return leave(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) { return cudaEventRecordWithFlags(handle, on, 0); }

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t awaited, unsigned flags) {
  (void)flags;
  cudaError_t error = enter_context();
  if (error) return error;
  struct event *event = item_of(&events, awaited);
  struct stream *stream = stream_of(handle);
  if (!event || !stream) return leave(cudaErrorInvalidResourceHandle);
  put(stream, ENGINE_NONE, 0);
  if (event->recorded && event->moment > stream->tail) stream->tail = event->moment;
  return leave(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct event *event = item_of(&events, handle);
  if (!event) return leave(cudaErrorInvalidResourceHandle);
  if (!settings.real_clock) virtual_now += QUESTION;
  settle();
  return leave(!event->recorded || event->moment <= clock_now() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct event *event = item_of(&events, handle);
  if (event && event->recorded) wait_until(event->moment);
  return leave(event ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct event *first = item_of(&events, from), *last = item_of(&events, to);
  if (!first || !last || !first->recorded || !last->recorded || !first->timed || !last->timed)
    return leave(cudaErrorInvalidResourceHandle);
  nanoseconds now = clock_now();
  if (first->moment > now || last->moment > now) return leave(cudaErrorNotReady);
  nanoseconds between = (last->moment - first->moment) / EVENT_RESOLUTION * EVENT_RESOLUTION;
  *milliseconds = (float)((double)between / 1e6);
  return leave(cudaSuccess);
}
