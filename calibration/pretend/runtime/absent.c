/* Calls that the real libraries have and this runtime does not: each fails by its name.
 *
 * build.py writes the names into absent_calls.h: what the real libcudart exports and cuda.h declares, less what the
 * other files define.
 */
#include "runtime.h"

/* What the driver answers is no error of the runtime, which cudaGetLastError would tell. */
#define ABSENT_OF_RUNTIME(name)                    \
  EXPORT cudaError_t absent_##name(void) __asm__(#name); \
  cudaError_t absent_##name(void) { return pretend_absent(#name); }
#define ABSENT_OF_DRIVER(name)                  \
  EXPORT CUresult absent_##name(void) __asm__(#name); \
  CUresult absent_##name(void) {                \
    name_absent(#name);                         \
    return CUDA_ERROR_NOT_SUPPORTED;            \
  }

#include "absent_calls.h"
