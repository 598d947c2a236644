/* Events: moments of a stream that others wait for and that are told apart in time. */
#include "runtime.h"

#include <stdlib.h>

#include "handles.h"

/* cudaEventElapsedTime resolves half a microsecond, says its documentation. */
#define EVENT_RESOLUTION ((nanoseconds)500)

struct event {
  bool recorded, timed;
  nanoseconds moment;
  struct graph *graph; /* of the stream on which it was recorded */
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
  event->graph = graph_of(stream);
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
  if (event->graph) join(stream, event->graph);
  else if (event->recorded) hold(stream, event->moment);
  return leave(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct event *event = item_of(&events, handle);
  if (!event) return leave(cudaErrorInvalidResourceHandle);
  host_works(QUESTION);
  settle();
  return leave(!event->recorded || is_done(event->moment) ? cudaSuccess : cudaErrorNotReady);
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
