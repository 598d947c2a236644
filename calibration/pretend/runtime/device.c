/* Reads the settings, lets calls in and out, and says what the GPUs are like. */
#define _GNU_SOURCE
#include "runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int installed;
static char missing_setting[64];
static bool forked; /* from a process that had begun a context, which a child cannot go on with */
static __thread int chosen_gpu;

/* ---- settings ---- */

static const char *text_of(const char *name) {
  char variable[64];
  snprintf(variable, sizeof variable, "VDNNSIM_PRETEND_%s", name);
  const char *text = getenv(variable);
  if ((!text || !*text) && !*missing_setting) snprintf(missing_setting, sizeof missing_setting, "%s", variable);
  return text ? text : "";
}

static double number_of(const char *name) { return strtod(text_of(name), NULL); }
static bool chosen(const char *name, const char *word) { return !strcmp(text_of(name), word); }

static void child_of_fork(void) {
  for (int gpu = 0; gpu < settings.gpus; gpu++) forked |= has_context(gpu);
  release_lock();
}

/* As the driver reads it: numbers with commas, up to the first that is no GPU. */
static int visible(int installed) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  if (!text) return installed;
  int count = 0;
  bool seen[MOST_GPUS] = {false};
  for (char *end; *text; text = *end == ',' ? end + 1 : end) {
    long gpu = strtol(text, &end, 10);
    if (end == text || gpu < 0 || gpu >= installed || seen[gpu] || (*end && *end != ',')) break;
    seen[gpu] = true;
    count++;
  }
  return count;
}

static void read_settings(void) {
  snprintf(settings.name, sizeof settings.name, "%s", text_of("NAME"));
  installed = (int)number_of("GPUS");
  if (installed > MOST_GPUS) installed = MOST_GPUS;
  settings.gpus = visible(installed);
  settings.memory_bytes = (size_t)number_of("MEMORY_BYTES");
  settings.context_bytes = (size_t)number_of("CONTEXT_BYTES");
  settings.multiprocessors = (int)number_of("SMS");
  sscanf(text_of("COMPUTE_CAPABILITY"), "%d.%d", &settings.major, &settings.minor);
  settings.threads_per_multiprocessor = (int)number_of("THREADS_PER_SM");
  settings.blocks_per_multiprocessor = (int)number_of("BLOCKS_PER_SM");
  settings.registers_per_multiprocessor = (int)number_of("REGISTERS_PER_SM");
  settings.l2_bytes = (size_t)number_of("L2_BYTES");
  settings.shared_memory_per_multiprocessor = (size_t)number_of("SHARED_MEMORY_PER_SM_BYTES");
  settings.shared_memory_per_block = (size_t)number_of("SHARED_MEMORY_PER_BLOCK_BYTES");
  settings.clock_hz = number_of("CLOCK_HZ");
  settings.memory_clock_hz = number_of("MEMORY_CLOCK_HZ");
  settings.h2d_bytes_per_s = number_of("H2D_BYTES_PER_S");
  settings.d2h_bytes_per_s = number_of("D2H_BYTES_PER_S");
  settings.dram_bytes_per_s = number_of("DRAM_BYTES_PER_S");
  settings.flop_per_s = number_of("FLOP_PER_S");
  settings.pin_bytes_per_s = number_of("PIN_BYTES_PER_S");
  settings.pin_latency = in_nanoseconds(number_of("PIN_LATENCY_S"));
  settings.copy_latency = in_nanoseconds(number_of("COPY_LATENCY_S"));
  settings.launch = in_nanoseconds(number_of("LAUNCH_S"));
  settings.issue = in_nanoseconds(number_of("ISSUE_S"));
  settings.real_clock = chosen("CLOCK", "real");
  settings.delayed_copies = chosen("COPIES", "delayed");
  const char *log_kernels = getenv("VDNNSIM_PRETEND_LOG_KERNELS");
  settings.log_kernels = log_kernels && !strcmp(log_kernels, "1");
  pthread_atfork(hold_lock, release_lock, child_of_fork);
}

/* ---- the way in and out ---- */

int current_gpu(void) { return chosen_gpu; }

int installed_gpus(void) {
  pthread_once(&once, read_settings);
  return installed;
}

cudaError_t enter(void) {
  pthread_once(&once, read_settings);
  if (*missing_setting) return explain(cudaErrorInitializationError, "%s is not set", missing_setting);
  if (!settings.gpus) return fail(cudaErrorNoDevice);
  if (forked)
    return explain(cudaErrorInitializationError, "CUDA was used before this process was forked, which ends its use");
  hold_lock();
  settle();
  return cudaSuccess;
}

cudaError_t enter_context(void) {
  cudaError_t error = enter();
  if (!error) begin_context(chosen_gpu);
  return error;
}

cudaError_t leave(cudaError_t error) {
  release_lock();
  return fail(error);
}

/* ---- which GPU, and what it is like ---- */

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 0;
  cudaError_t error = enter();
  if (error) return error;
  *count = settings.gpus;
  return leave(cudaSuccess);
}

cudaError_t cudaGetDevice(int *gpu) {
  cudaError_t error = enter();
  if (error) return error;
  *gpu = chosen_gpu;
  return leave(cudaSuccess);
}

cudaError_t cudaSetDevice(int gpu) {
  cudaError_t error = enter();
  if (error) return error;
  if (gpu < 0 || gpu >= settings.gpus) return leave(cudaErrorInvalidDevice);
  chosen_gpu = gpu;
  begin_context(gpu); /* as the runtime does it since CUDA 12 */
  return leave(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

/* DRAM moves two bits a clock and wire; a bus is made of channels of 32 wires. */
static int bus_bits(void) { return 32 * (int)(settings.dram_bytes_per_s * 8 / (2 * settings.memory_clock_hz) / 32 + 0.5); }

static void describe(struct cudaDeviceProp *properties, int gpu) {
  memset(properties, 0, sizeof *properties);
  snprintf(properties->name, sizeof properties->name, "%s", settings.name);
  snprintf(properties->uuid.bytes, sizeof properties->uuid.bytes, "pretended-%d", gpu);
  properties->totalGlobalMem = settings.memory_bytes;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = settings.shared_memory_per_block;
  properties->sharedMemPerMultiprocessor = settings.shared_memory_per_multiprocessor;
  properties->reservedSharedMemPerBlock = settings.major >= 8 ? 1 << 10 : 0;
  properties->regsPerBlock = 1 << 16;
  properties->regsPerMultiprocessor = settings.registers_per_multiprocessor;
  properties->warpSize = 32;
  properties->memPitch = INT32_MAX;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = INT32_MAX;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->totalConstMem = 64 << 10;
  properties->major = settings.major;
  properties->minor = settings.minor;
  properties->textureAlignment = 512;
  properties->texturePitchAlignment = 32;
  properties->multiProcessorCount = settings.multiprocessors;
  properties->maxThreadsPerMultiProcessor = settings.threads_per_multiprocessor;
  properties->maxBlocksPerMultiProcessor = settings.blocks_per_multiprocessor;
  properties->canMapHostMemory = properties->concurrentKernels = properties->unifiedAddressing = 1;
  properties->asyncEngineCount = 2;
  properties->memoryBusWidth = bus_bits();
  properties->l2CacheSize = (int)settings.l2_bytes;
  properties->streamPrioritiesSupported = properties->hostRegisterSupported = 1;
  properties->cooperativeLaunch = settings.major >= 6;
  properties->pciBusID = gpu + 1;
#if CUDART_VERSION < 13000
  properties->clockRate = (int)(settings.clock_hz / 1e3);
  properties->memoryClockRate = (int)(settings.memory_clock_hz / 1e3);
#endif
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int gpu) {
  cudaError_t error = enter();
  if (error) return error;
  if (gpu < 0 || gpu >= settings.gpus) return leave(cudaErrorInvalidDevice);
  describe(properties, gpu);
  return leave(cudaSuccess);
}

/* Attributes that no property names are refused by their number, but for those that are 0: what there is not. */
static bool attribute_of(int *value, enum cudaDeviceAttr attribute, int gpu) {
  struct cudaDeviceProp properties;
  describe(&properties, gpu);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; return true;
    case cudaDevAttrMaxBlockDimX: *value = properties.maxThreadsDim[0]; return true;
    case cudaDevAttrMaxBlockDimY: *value = properties.maxThreadsDim[1]; return true;
    case cudaDevAttrMaxBlockDimZ: *value = properties.maxThreadsDim[2]; return true;
    case cudaDevAttrMaxGridDimX: *value = properties.maxGridSize[0]; return true;
    case cudaDevAttrMaxGridDimY: *value = properties.maxGridSize[1]; return true;
    case cudaDevAttrMaxGridDimZ: *value = properties.maxGridSize[2]; return true;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)properties.sharedMemPerBlock; return true;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)properties.sharedMemPerBlockOptin; return true;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)properties.sharedMemPerMultiprocessor; return true;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = (int)properties.reservedSharedMemPerBlock; return true;
    case cudaDevAttrMaxRegistersPerBlock: *value = properties.regsPerBlock; return true;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = properties.regsPerMultiprocessor; return true;
    case cudaDevAttrTotalConstantMemory: *value = (int)properties.totalConstMem; return true;
    case cudaDevAttrWarpSize: *value = properties.warpSize; return true;
    case cudaDevAttrTextureAlignment: *value = (int)properties.textureAlignment; return true;
    case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; return true;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = properties.maxThreadsPerMultiProcessor; return true;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = properties.maxBlocksPerMultiProcessor; return true;
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; return true;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; return true;
    case cudaDevAttrClockRate: *value = (int)(settings.clock_hz / 1e3); return true;
    case cudaDevAttrMemoryClockRate: *value = (int)(settings.memory_clock_hz / 1e3); return true;
    case cudaDevAttrGlobalMemoryBusWidth: *value = properties.memoryBusWidth; return true;
    case cudaDevAttrL2CacheSize: *value = properties.l2CacheSize; return true;
    case cudaDevAttrAsyncEngineCount: *value = properties.asyncEngineCount; return true;
    case cudaDevAttrPciBusId: *value = properties.pciBusID; return true;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrHostRegisterSupported: *value = 1; return true;
    case cudaDevAttrCooperativeLaunch: *value = properties.cooperativeLaunch; return true;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrComputeMode:
    case cudaDevAttrIntegrated:
    case cudaDevAttrTccDriver:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrIsMultiGpuBoard:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
    case cudaDevAttrDirectManagedMemAccessFromHost:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrMaxPersistingL2CacheSize:
    case cudaDevAttrGPUDirectRDMASupported: *value = 0; return true;
    default: return false;
  }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int gpu) {
  cudaError_t error = enter();
  if (error) return error;
  if (gpu < 0 || gpu >= settings.gpus) return leave(cudaErrorInvalidDevice);
  if (attribute_of(value, attribute, gpu)) return leave(cudaSuccess);
  leave(cudaSuccess);
  return explain(cudaErrorNotSupported, "attribute %d is not told of the pretended GPU", (int)attribute);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int gpu) {
  snprintf(id, (size_t)length, "0000:%02x:00.0", gpu + 1);
  return cudaSuccess;
}

/* There is nothing to profile, and a program that asks for it goes on. */
EXPORT cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

/* ---- for the tests and the command, by ctypes ---- */

EXPORT void pretend_spend(double seconds) {
  if (enter()) return;
  spend(in_nanoseconds(seconds));
  settle();
  leave(cudaSuccess);
}

EXPORT int64_t pretend_count(const char *what) {
  static const char *const names[COUNTS] = {"malloc", "free", "launch", "copy", "pin"};
  for (int each = 0; each < COUNTS; each++)
    if (!strcmp(names[each], what)) return counts[each];
  return -1;
}
