/* What the runtime's headers take from a file of this name, for a plain C compiler; some wheels leave that file out. */
#ifndef VDNNSIM_PRETEND_HOST_DEFINES_H
#define VDNNSIM_PRETEND_HOST_DEFINES_H

#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __forceinline__ inline
#define __noinline__
#define __inline_hint__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDAAPI

#endif
