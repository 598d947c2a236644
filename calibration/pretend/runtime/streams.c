/* Streams, on which work is put when the host issues it. Its begin and end are known at once: it begins when the host
 * has issued it, its stream has come to it and its engine is free.
 */
#include "runtime.h"

#include <stdlib.h>

#include "handles.h"

struct stream {
  int gpu, priority;
  bool blocking; /* waits for the default stream, and it for this one */
  nanoseconds tail;
  struct graph *graph; /* that it records */
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
  host_works(settings.issue);
  return record_work(stream->graph, engine, lasts) ? clock_now() : append(stream, engine, lasts);
}

nanoseconds append(struct stream *stream, enum engine engine, nanoseconds lasts) {
  nanoseconds begin = clock_now(), before = reached(stream);
  if (before > begin) begin = before;
  if (engine != ENGINE_NONE) begin = occupy(stream->gpu, engine, begin, lasts);
  stream->tail = begin + lasts;
  return stream->tail;
}

void hold(struct stream *stream, nanoseconds moment) {
  if (moment > stream->tail) stream->tail = moment;
}

struct graph *graph_of(const struct stream *stream) { return stream->graph; }

void join(struct stream *stream, struct graph *graph) { stream->graph = graph; }

void part(const struct graph *graph) {
  for (size_t slot = 0; slot < streams.count; slot++) {
    struct stream *each = streams.entries[slot].item;
    if (each && each->graph == graph) each->graph = NULL;
  }
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
  if (stream && stream->graph) return leave(cudaErrorStreamCaptureUnsupported);
  if (stream) wait_until(reached(stream));
  return leave(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

static bool is_recording(int gpu) {
  for (size_t slot = 0; slot < streams.count; slot++) {
    const struct stream *each = streams.entries[slot].item;
    if (each && each->gpu == gpu && each->graph) return true;
  }
  return false;
}

cudaError_t cudaDeviceSynchronize(void) {
  cudaError_t error = enter_context();
  if (error) return error;
  if (is_recording(current_gpu())) return leave(cudaErrorStreamCaptureUnsupported);
  wait_until(all_done(current_gpu()));
  return leave(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct stream *stream = stream_of(handle);
  if (!stream) return leave(cudaErrorInvalidResourceHandle);
  if (stream->graph) return leave(cudaErrorStreamCaptureUnsupported);
  host_works(QUESTION);
  settle();
  return leave(is_done(reached(stream)) ? cudaSuccess : cudaErrorNotReady);
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
