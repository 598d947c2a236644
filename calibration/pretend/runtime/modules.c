/* Kernels that are compiled at run time: cuDNN's own engines do so as a plan is made, and load what NVRTC made of them.
 *
 * They are loaded, for which plans cuDNN offers hangs on that, and hold no device memory. They cannot be launched: of a
 * plan only the time is known, which the stand-in for cuDNN puts on its stream.
 */
#include "runtime.h"

#include <stdlib.h>

/* A library, a kernel of it and its function are addresses that nothing reads. */
static char loaded;

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **option_values,
                           unsigned option_count, CUlibraryOption *library_options, void **library_values,
                           unsigned library_count) {
  *library = (CUlibrary)&loaded;
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) { return CUDA_SUCCESS; }

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  *kernel = (CUkernel)&loaded;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  *function = (CUfunction)&loaded;
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice gpu) {
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) { return CUDA_SUCCESS; }

/* ---- names of the first CUDA, which cuda.h no longer declares, and which cuDNN looks up but does not call ---- */

#define OLD_NAME(name)                                 \
  EXPORT CUresult old_##name(void) __asm__(#name);     \
  CUresult old_##name(void) {                          \
    name_absent(#name);                                \
    return CUDA_ERROR_NOT_SUPPORTED;                   \
  }
OLD_NAME(cuCtxPopCurrent)
OLD_NAME(cuCtxPushCurrent)
OLD_NAME(cuLinkCreate)
OLD_NAME(cuLinkAddData)
