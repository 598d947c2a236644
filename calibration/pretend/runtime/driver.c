/* The driver's library: the calls that PyTorch makes of it, and how the runtime hands them out by name.
 *
 * They stand in the runtime's library; libcuda.so.1 is an empty one that brings it along.
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* One for each GPU; addresses that nothing reads. */
static char contexts[MOST_GPUS];

CUresult result_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return CUDA_SUCCESS;
    case cudaErrorMemoryAllocation: return CUDA_ERROR_OUT_OF_MEMORY;
    case cudaErrorInvalidDevice: return CUDA_ERROR_INVALID_DEVICE;
    case cudaErrorNoDevice: return CUDA_ERROR_NO_DEVICE;
    case cudaErrorNotSupported: return CUDA_ERROR_NOT_SUPPORTED;
    case cudaErrorInitializationError: return CUDA_ERROR_NOT_INITIALIZED;
    case cudaErrorInvalidResourceHandle: return CUDA_ERROR_INVALID_HANDLE;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuInit(unsigned flags) {
  (void)flags;
  int count;
  return result_of(cudaGetDeviceCount(&count));
}

CUresult cuDriverGetVersion(int *version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult result, const char **name) {
  switch (result) {
    case CUDA_SUCCESS: *name = "CUDA_SUCCESS"; break;
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_NOT_INITIALIZED: *name = "CUDA_ERROR_NOT_INITIALIZED"; break;
    case CUDA_ERROR_NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case CUDA_ERROR_INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; break;
    case CUDA_ERROR_INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; break;
    case CUDA_ERROR_NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; break;
    case CUDA_ERROR_FILE_NOT_FOUND: *name = "CUDA_ERROR_FILE_NOT_FOUND"; break;
    case CUDA_ERROR_NO_BINARY_FOR_GPU: *name = "CUDA_ERROR_NO_BINARY_FOR_GPU"; break;
    case CUDA_ERROR_NOT_SUPPORTED: *name = "CUDA_ERROR_NOT_SUPPORTED"; break;
    default: *name = NULL; return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char **text) {
  switch (result) {
    case CUDA_SUCCESS: *text = "no error"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
    case CUDA_ERROR_NOT_SUPPORTED: *text = cudaGetErrorString(cudaErrorNotSupported); break;
    case CUDA_ERROR_NOT_INITIALIZED: *text = cudaGetErrorString(cudaErrorInitializationError); break;
    default: return cuGetErrorName(result, text);
  }
  return CUDA_SUCCESS;
}

/* ---- GPUs and their contexts ---- */

CUresult cuDeviceGetCount(int *count) { return result_of(cudaGetDeviceCount(count)); }

CUresult cuDeviceGet(CUdevice *gpu, int ordinal) {
  int count;
  cudaError_t error = cudaGetDeviceCount(&count);
  *gpu = ordinal;
  return error ? result_of(error) : ordinal >= 0 && ordinal < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice gpu) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: *value = 0; return CUDA_SUCCESS;
    default: return result_of(cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, gpu));
  }
}

CUresult cuDeviceGetName(char *name, int length, CUdevice gpu) {
  struct cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, gpu);
  if (!error) snprintf(name, (size_t)length, "%s", properties.name);
  return result_of(error);
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice gpu) {
  struct cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, gpu);
  if (!error) *bytes = properties.totalGlobalMem;
  return result_of(error);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice gpu) {
  struct cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, gpu);
  if (!error) memcpy(uuid, &properties.uuid, sizeof *uuid);
  return result_of(error);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice gpu, unsigned *flags, int *active) {
  *flags = 0;
  cudaError_t error = enter();
  if (error) return result_of(error);
  bool there = gpu >= 0 && gpu < settings.gpus;
  *active = there && has_context(gpu);
  leave(cudaSuccess);
  return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice gpu) {
  cudaError_t error = enter();
  if (error) return result_of(error);
  bool there = gpu >= 0 && gpu < settings.gpus;
  if (there) begin_context(gpu);
  leave(cudaSuccess);
  *context = there ? (CUcontext)&contexts[gpu] : NULL;
  return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  cudaError_t error = enter();
  if (error) return result_of(error);
  *context = has_context(current_gpu()) ? (CUcontext)&contexts[current_gpu()] : NULL;
  leave(cudaSuccess);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *gpu) {
  *gpu = current_gpu();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  char *one = (char *)context;
  if (one < contexts || one >= contexts + MOST_GPUS) return CUDA_ERROR_INVALID_VALUE;
  return result_of(cudaSetDevice((int)(one - contexts)));
}

/* Where device memory and pinned memory are, and what their addresses are on the GPU: those of the host. */
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  struct cudaPointerAttributes found;
  cudaError_t error = cudaPointerGetAttributes(&found, (void *)address);
  if (error) return result_of(error);
  if (found.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)value = address; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = found.device; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = (CUcontext)&contexts[found.device]; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned *)value = found.type == cudaMemoryTypeDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    default: name_absent("cuPointerGetAttribute of an attribute that is not told"); return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuMemGetInfo(size_t *left, size_t *all) { return result_of(cudaMemGetInfo(left, all)); }

/* ---- calls by their names ---- */

/* The newest form of a call has a number in its symbol: cuMemGetInfo_v2. */
static void *call_of(const char *name) {
  char symbol[128];
  for (int version = 4; version > 1; version--) {
    snprintf(symbol, sizeof symbol, "%s_v%d", name, version);
    void *call = dlsym(RTLD_DEFAULT, symbol);
    if (call) return call;
  }
  return dlsym(RTLD_DEFAULT, name);
}

CUresult cuGetProcAddress(const char *name, void **call, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *found) {
  (void)version;
  (void)flags;
  *call = call_of(name);
  if (found) *found = *call ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *call ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **call, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found) {
  (void)version;
  (void)flags;
  *call = call_of(name);
  if (found) *found = *call ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
