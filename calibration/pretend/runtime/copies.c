/* Copies and fills: what they take, and when the bytes move.
 *
 * With VDNNSIM_PRETEND_COPIES=now bytes move when the copy is issued. With `delayed` they move when the clock comes to
 * the end of the copy, in the order of these moments on whatever stream: who reads without having waited reads the old
 * bytes, as on a GPU. A copy to or from memory that is not pinned is staged by the driver: the call returns when it is
 * done.
 */
#include "runtime.h"

struct route {
  enum engine engine;
  nanoseconds lasts;
  bool staged;
};

static struct route route_of(const void *to, const void *from, size_t bytes) {
  int to_gpu = gpu_of(to), from_gpu = gpu_of(from);
  if (to_gpu >= 0 && to_gpu == from_gpu) {
    nanoseconds alone = settings.launch + in_nanoseconds(2.0 * (double)bytes / settings.dram_bytes_per_s);
    return (struct route){ENGINE_KERNELS, kernel_lasts(alone), false};
  }
  /* Between GPUs over the link of the one that is read: a profile of one GPU knows no other road. */
  bool to_host = to_gpu < 0 || (from_gpu >= 0 && to_gpu != from_gpu);
  double rate = to_host ? settings.d2h_bytes_per_s : settings.h2d_bytes_per_s;
  bool staged = (to_gpu < 0 && !pinned(to)) || (from_gpu < 0 && !pinned(from));
  return (struct route){to_host ? ENGINE_D2H : ENGINE_H2D,
                        settings.copy_latency + in_nanoseconds((double)bytes / rate), staged};
}

static cudaError_t copy(void *to, const void *from, size_t bytes, struct stream *stream, bool waits) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!bytes) return cudaSuccess;
  bool outside = (gpu_of(to) >= 0 && !allocated(to, bytes)) || (gpu_of(from) >= 0 && !allocated(from, bytes));
  if (outside) return cudaErrorIllegalAddress;
  counts[COUNT_COPY]++;
  struct route route = route_of(to, from, bytes);
  if (graph_of(stream) && (waits || route.staged)) return cudaErrorStreamCaptureUnsupported;
  nanoseconds done = put(stream, route.engine, route.lasts);
  move_at(done, to, from, 0, bytes);
  if (waits || route.staged) wait_until(done);
  return cudaSuccess;
}

static cudaError_t copy_on(void *to, const void *from, size_t bytes, cudaStream_t stream, bool waits) {
  cudaError_t error = enter_context();
  if (error) return error;
  return leave(copy(to, from, bytes, stream_of(stream), waits));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)kind; /* addresses say it */
  return copy_on(to, from, bytes, stream, false);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  return copy_on(to, from, bytes, NULL, true);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes,
                                cudaStream_t stream) {
  (void)to_gpu;
  (void)from_gpu;
  return copy_on(to, from, bytes, stream, false);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t handle) {
  (void)kind;
  cudaError_t error = enter_context();
  if (error) return error;
  struct stream *stream = stream_of(handle);
  if (!stream) return leave(cudaErrorInvalidResourceHandle);
  if (!width || !height) return leave(cudaSuccess);
  size_t to_bytes = to_pitch * (height - 1) + width, from_bytes = from_pitch * (height - 1) + width;
  bool outside = (gpu_of(to) >= 0 && !allocated(to, to_bytes)) || (gpu_of(from) >= 0 && !allocated(from, from_bytes));
  if (outside) return leave(cudaErrorIllegalAddress);
  counts[COUNT_COPY]++;
  struct route route = route_of(to, from, width * height);
  nanoseconds done = put(stream, route.engine, route.lasts);
  for (size_t row = 0; row < height; row++)
    move_at(done, (char *)to + row * to_pitch, (const char *)from + row * from_pitch, 0, width);
  if (route.staged) wait_until(done);
  return leave(cudaSuccess);
}

static cudaError_t fill(void *address, int value, size_t bytes, cudaStream_t handle) {
  cudaError_t error = enter_context();
  if (error) return error;
  struct stream *stream = stream_of(handle);
  if (!stream) return leave(cudaErrorInvalidResourceHandle);
  if (!bytes) return leave(cudaSuccess);
  if (!allocated(address, bytes)) return leave(gpu_of(address) < 0 ? cudaErrorInvalidValue : cudaErrorIllegalAddress);
  nanoseconds alone = settings.launch + in_nanoseconds((double)bytes / settings.dram_bytes_per_s);
  move_at(put(stream, ENGINE_KERNELS, kernel_lasts(alone)), address, NULL, value, bytes);
  return leave(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *address, int value, size_t bytes, cudaStream_t stream) {
  return fill(address, value, bytes, stream);
}
cudaError_t cudaMemset(void *address, int value, size_t bytes) { return fill(address, value, bytes, NULL); }

/* ---- several GPUs ---- */

static bool peers[MOST_GPUS][MOST_GPUS];

cudaError_t cudaDeviceCanAccessPeer(int *can, int gpu, int peer) {
  cudaError_t error = enter();
  if (error) return error;
  bool there = gpu >= 0 && peer >= 0 && gpu < settings.gpus && peer < settings.gpus;
  *can = there && gpu != peer;
  return leave(there ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  (void)flags;
  cudaError_t error = enter_context();
  if (error) return error;
  if (peer < 0 || peer >= settings.gpus || peer == current_gpu()) return leave(cudaErrorInvalidDevice);
  bool *enabled = &peers[current_gpu()][peer];
  if (*enabled) return leave(cudaErrorPeerAccessAlreadyEnabled);
  *enabled = true;
  return leave(cudaSuccess);
}
