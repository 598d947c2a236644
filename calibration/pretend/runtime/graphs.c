/* Graphs: recorded work, which a stream does in one launch as often as it is asked.
 *
 * Work of several streams that joined is done in the order in which it was recorded, one after the other. What the host
 * stands in for is not done again.
 */
#include "runtime.h"

#include <stdlib.h>

static void drop(struct graph *graph) {
  if (--graph->uses) return;
  free(graph->work);
  free(graph);
}

/* ---- the API ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
  static unsigned long long last_id;
  cudaError_t error = enter_context();
  if (error) return error;
  struct stream *stream = stream_of(handle);
  if (!stream) return leave(cudaErrorInvalidResourceHandle);
  if (!handle || graph_of(stream)) return leave(cudaErrorStreamCaptureUnsupported);
  struct graph *graph = calloc(1, sizeof *graph);
  graph->uses = 1;
  graph->id = ++last_id;
  join(stream, graph);
  return leave(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *made) {
  *made = NULL;
  cudaError_t error = enter_context();
  if (error) return error;
  struct stream *stream = stream_of(handle);
  struct graph *graph = stream ? graph_of(stream) : NULL;
  if (!graph) return leave(cudaErrorIllegalState);
  part(graph);
  end_recording();
  *made = (cudaGraph_t)graph;
  return leave(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
  cudaError_t error = enter();
  if (error) return error;
  struct stream *stream = stream_of(handle);
  *status = stream && graph_of(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return leave(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
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
  (void)nodes;
  cudaError_t error = cudaStreamIsCapturing(handle, status);
  if (error) return error;
  struct graph *found = *status == cudaStreamCaptureStatusActive ? graph_of(stream_of(handle)) : NULL;
  if (id) *id = found ? found->id : 0;
  if (graph) *graph = (cudaGraph_t)found;
  if (count) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  static __thread enum cudaStreamCaptureMode now = cudaStreamCaptureModeGlobal;
  enum cudaStreamCaptureMode before = now;
  now = *mode;
  *mode = before;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  if (nodes) return pretend_absent("cudaGraphGetNodes with room for nodes");
  *count = ((const struct graph *)graph)->count;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
  cudaError_t error = enter_context();
  if (error) return error;
  ((struct graph *)graph)->uses++;
  *executable = (cudaGraphExec_t)graph;
  return leave(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  cudaError_t error = enter_context();
  if (error) return error;
  const struct graph *graph = (const struct graph *)executable;
  struct stream *stream = stream_of(handle);
  if (!stream) return leave(cudaErrorInvalidResourceHandle);
  if (graph_of(stream)) return leave(cudaErrorStreamCaptureUnsupported);
  counts[COUNT_LAUNCH]++;
  nanoseconds lasts = kernel_lasts(-1);
  put(stream, ENGINE_NONE, 0);
  if (lasts >= 0) append(stream, ENGINE_KERNELS, lasts);
  for (size_t each = 0; each < graph->count; each++) {
    const struct work *work = &graph->work[each];
    nanoseconds done = append(stream, work->engine, lasts < 0 ? work->lasts : 0);
    move_at(done, work->to, work->from, work->value, work->bytes);
  }
  return leave(cudaSuccess);
}

static cudaError_t destroy(void *graph) {
  cudaError_t error = enter();
  if (error) return error;
  drop(graph);
  return leave(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return destroy(graph); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return destroy(executable); }
