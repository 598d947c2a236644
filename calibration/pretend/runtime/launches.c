/* Kernels: their names, and launches, which take time and compute nothing unless a function of the host stands in.
 *
 * Every library of PyTorch registers its kernels when it is loaded, under the address of a function of the host.
 */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

/* PyTorch's kernels for one operand after the other have a thread read and write eight float32: a rough default for all
 * kernels that no operator was announced for. */
#define BYTES_A_THREAD 64.0

static struct kernel *kernels; /* an open hash table by address */
static size_t kernel_count, kernel_room;

static struct kernel *slot_of(const void *host) {
  size_t slot = (size_t)(((uintptr_t)host >> 3) * 0x9E3779B97F4A7C15u) >> 20;
  for (slot %= kernel_room; kernels[slot].host && kernels[slot].host != host; slot = (slot + 1) % kernel_room) {
  }
  return &kernels[slot];
}

static void grow(void) {
  struct kernel *old = kernels;
  size_t old_room = kernel_room;
  kernel_room = old_room ? 2 * old_room : 1 << 16;
  kernels = calloc(kernel_room, sizeof *kernels);
  for (size_t each = 0; each < old_room; each++)
    if (old[each].host) *slot_of(old[each].host) = old[each];
  free(old);
}

static const struct kernel *kernel_of(const void *host) {
  const struct kernel *kernel = kernel_room ? slot_of(host) : NULL;
  return kernel && kernel->host ? kernel : NULL;
}

/* ---- what code that nvcc made calls when its library is loaded ---- */

/* Libraries are loaded one at a time, before anything is launched from them. */
EXPORT void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name, int threads,
                                   uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp_size) {
  (void)device, (void)threads, (void)thread, (void)block, (void)block_size, (void)grid_size,
      (void)warp_size;
  if (2 * kernel_count >= kernel_room) grow();
  struct kernel *kernel = slot_of(host);
  if (!kernel->host) kernel_count++;
  *kernel = (struct kernel){.host = host, .module = (const struct module *)module, .name = name};
}

EXPORT void __cudaRegisterVar(void **module, char *host, char *device, const char *name, int external, size_t bytes,
                              int constant, int global) {
  (void)module, (void)host, (void)device, (void)name, (void)external, (void)bytes, (void)constant, (void)global;
}

EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
  *kernel = (cudaKernel_t)host;
  return cudaSuccess;
}

/* ---- launches ---- */

#define MOST_NESTED 8
static __thread struct {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} configurations[MOST_NESTED];
static __thread int nested;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
  if (nested == MOST_NESTED) return 1;
  configurations[nested].grid = grid;
  configurations[nested].block = block;
  configurations[nested].shared = shared;
  configurations[nested++].stream = stream;
  return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  if (!nested) return fail(cudaErrorInvalidConfiguration);
  *grid = configurations[--nested].grid;
  *block = configurations[nested].block;
  *shared = configurations[nested].shared;
  *(cudaStream_t *)stream = configurations[nested].stream;
  return cudaSuccess;
}

static bool configurable(dim3 grid, dim3 block, size_t shared) {
  size_t threads = (size_t)block.x * block.y * block.z;
  return threads && threads <= 1024 && block.x <= 1024 && block.y <= 1024 && block.z <= 64 && grid.x && grid.y &&
         grid.z && grid.x <= INT32_MAX && grid.y <= 65535 && grid.z <= 65535 &&
         shared <= settings.shared_memory_per_block;
}

static cudaError_t runnable(const struct kernel *kernel) {
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  return image_for(kernel->module, settings.major, settings.minor) ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

/* The engine of a kernel, and what it lasts alone. That of torch.cuda._sleep waits for as many cycles as it is told, in
 * one thread, beside which others run. */
static enum engine engine_of(const char *name, dim3 grid, dim3 block, void **arguments, nanoseconds *alone) {
  double threads = (double)block.x * block.y * block.z * grid.x * grid.y * grid.z;
  *alone = settings.launch + in_nanoseconds(BYTES_A_THREAD * threads / settings.dram_bytes_per_s);
  if (!arguments || !strstr(name, "spin_kernel")) return ENGINE_KERNELS;
  *alone = in_nanoseconds((double)*(int64_t *)arguments[0] / settings.clock_hz);
  return ENGINE_NONE;
}

cudaError_t launch(const struct kernel *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                   cudaStream_t handle) {
  struct stream *stream = stream_of(handle);
  if (!stream || stream_gpu(stream) != current_gpu()) return leave(cudaErrorInvalidResourceHandle);
  if (!configurable(grid, block, shared)) return leave(cudaErrorInvalidConfiguration);
  counts[COUNT_LAUNCH]++;
  nanoseconds alone;
  enum engine engine = engine_of(kernel->name, grid, block, arguments, &alone);
  nanoseconds done = put(stream, engine, kernel_lasts(alone));
  if (settings.log_kernels) pretend_log("kernel %s %u %u %u", kernel->name, grid.x, grid.y, grid.z);
  void (*stand_in)(void **, dim3, dim3) = graph_of(stream) ? NULL : kernel->stand_in;
  if (stand_in) settle_before_kernel(done);
  leave(cudaSuccess);
  if (stand_in) stand_in(arguments, grid, block);
  return cudaSuccess;
}

static cudaError_t launch_registered(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared,
                                     cudaStream_t stream) {
  cudaError_t error = enter_context();
  if (error) return error;
  const struct kernel *kernel = kernel_of(host);
  error = runnable(kernel);
  return error ? leave(error) : launch(kernel, grid, block, arguments, shared, stream);
}

EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                                      cudaStream_t stream) {
  return launch_registered(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
  return launch_registered(host, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared,
                                        cudaStream_t stream) {
  return launch_registered(host, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *configuration, const void *host, void **arguments) {
  return launch_registered(host, configuration->gridDim, configuration->blockDim, arguments,
                           configuration->dynamicSmemBytes, configuration->stream);
}

/* Let a function of the host do what kernels do whose name has a part; returns how many there are. It is called when
 * the kernel is launched, after all copies that end before the kernel does, and without the lock. */
EXPORT int pretend_stand_in(const char *part, void (*function)(void **arguments, dim3 grid, dim3 block)) {
  int found = 0;
  if (enter()) return 0;
  for (size_t each = 0; each < kernel_room; each++)
    if (kernels[each].host && strstr(kernels[each].name, part)) {
      kernels[each].stand_in = function;
      found++;
    }
  leave(cudaSuccess);
  return found;
}

/* ---- what a kernel is like: guesses ---- */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *host) {
  const struct kernel *kernel = kernel_of(host);
  cudaError_t error = runnable(kernel);
  if (error) return fail(error);
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = ASSUMED_REGISTERS;
  attributes->binaryVersion = attributes->ptxVersion =
      image_for(kernel->module, settings.major, settings.minor);
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute, int value) {
  (void)host;
  bool too_much = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value > 0 &&
                  (size_t)value > settings.shared_memory_per_block;
  return too_much ? fail(cudaErrorInvalidValue) : cudaSuccess;
}

/* Threads, blocks, registers and shared memory of a multiprocessor each allow for so many blocks. */
int resident_blocks(int threads, size_t shared) {
  if (threads < 1 || threads > 1024) return 0;
  int by_threads = settings.threads_per_multiprocessor / threads;
  int by_registers = settings.registers_per_multiprocessor / (threads * ASSUMED_REGISTERS);
  int least = settings.blocks_per_multiprocessor;
  if (by_threads < least) least = by_threads;
  if (by_registers < least) least = by_registers;
  if (shared && settings.shared_memory_per_multiprocessor / shared < (size_t)least)
    least = (int)(settings.shared_memory_per_multiprocessor / shared);
  return least;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads,
                                                                   size_t shared, unsigned flags) {
  (void)host;
  (void)flags;
  *blocks = resident_blocks(threads, shared);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}
