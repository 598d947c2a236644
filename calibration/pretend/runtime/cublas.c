/* cuBLAS on the pretended GPU: products take their time on the stream of the handle, and nothing is written.
 *
 * A product of an m x k by a k x n matrix is 2 m n k operations, four times as many if it is complex, at one rate
 * whatever the element type. Solutions of triangular systems are there, too. What returns a number to the host, what
 * factorizes and what MAGMA alone calls is refused: nobody has computed it.
 */
#include "libraries.h"

#include <cublas_v2.h>
#include <stdlib.h>

struct blas {
  cudaStream_t stream;
  cublasMath_t math;
  cublasPointerMode_t pointers;
  cublasAtomicsMode_t atomics;
};

static struct blas *of(cublasHandle_t handle) { return (struct blas *)handle; }

static cublasStatus_t operations(cublasHandle_t handle, double flop) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  pretend_busy(of(handle)->stream, seconds_of_flop(flop));
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- handles ---- */

EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  *handle = calloc(1, sizeof(struct blas));
  return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

/* Workspaces are the caller's memory; products that compute nothing need none, and no part of the card. */
EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
  return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

EXPORT cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int count) {
  return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

#define KEPT(set, get, type, field)                             \
  EXPORT cublasStatus_t set(cublasHandle_t handle, type value) { \
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;          \
    of(handle)->field = value;                                  \
    return CUBLAS_STATUS_SUCCESS;                               \
  }                                                             \
  EXPORT cublasStatus_t get(cublasHandle_t handle, type *value) { \
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;          \
    *value = of(handle)->field;                                 \
    return CUBLAS_STATUS_SUCCESS;                               \
  }
KEPT(cublasSetStream_v2, cublasGetStream_v2, cudaStream_t, stream)
KEPT(cublasSetMathMode, cublasGetMathMode, cublasMath_t, math)
KEPT(cublasSetPointerMode_v2, cublasGetPointerMode_v2, cublasPointerMode_t, pointers)
KEPT(cublasSetAtomicsMode, cublasGetAtomicsMode, cublasAtomicsMode_t, atomics)

/* ---- products, by the letter of their element type; a complex product is four real ones ---- */

#define OF_TYPE(letter, type, parts)                                                                                  \
  EXPORT cublasStatus_t cublas##letter##gemm_v2(cublasHandle_t handle, cublasOperation_t transa,                      \
                                                cublasOperation_t transb, int m, int n, int k, const type *alpha,     \
                                                const type *A, int lda, const type *B, int ldb, const type *beta,     \
                                                type *C, int ldc) {                                                   \
    return operations(handle, 2. * parts * m * n * k);                                                                \
  }                                                                                                                   \
  EXPORT cublasStatus_t cublas##letter##gemmStridedBatched(                                                           \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,                 \
      const type *alpha, const type *A, int lda, long long strideA, const type *B, int ldb, long long strideB,        \
      const type *beta, type *C, int ldc, long long strideC, int count) {                                             \
    return operations(handle, 2. * parts * m * n * k * count);                                                        \
  }                                                                                                                   \
  EXPORT cublasStatus_t cublas##letter##gemmBatched(                                                                  \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,                 \
      const type *alpha, const type *const A[], int lda, const type *const B[], int ldb, const type *beta,            \
      type *const C[], int ldc, int count) {                                                                          \
    return operations(handle, 2. * parts * m * n * k * count);                                                        \
  }                                                                                                                   \
  EXPORT cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,         \
                                                const type *alpha, const type *A, int lda, const type *x, int incx,   \
                                                const type *beta, type *y, int incy) {                                \
    return operations(handle, 2. * parts * m * n);                                                                    \
  }                                                                                                                   \
  EXPORT cublasStatus_t cublas##letter##trsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,  \
                                                cublasOperation_t trans, cublasDiagType_t diag, int m, int n,         \
                                                const type *alpha, const type *A, int lda, type *B, int ldb) {        \
    return operations(handle, 1. * parts * m * n * (side == CUBLAS_SIDE_LEFT ? m : n));                               \
  }                                                                                                                   \
  EXPORT cublasStatus_t cublas##letter##trsmBatched(cublasHandle_t handle, cublasSideMode_t side,                     \
                                                    cublasFillMode_t uplo, cublasOperation_t trans,                   \
                                                    cublasDiagType_t diag, int m, int n, const type *alpha,           \
                                                    const type *const A[], int lda, type *const B[], int ldb,         \
                                                    int count) {                                                      \
    return operations(handle, 1. * parts * m * n * (side == CUBLAS_SIDE_LEFT ? m : n) * count);                       \
  }
OF_TYPE(S, float, 1)
OF_TYPE(D, double, 1)
OF_TYPE(C, cuComplex, 4)
OF_TYPE(Z, cuDoubleComplex, 4)

static int parts_of(cudaDataType type) {
  return type == CUDA_C_16F || type == CUDA_C_16BF || type == CUDA_C_32F || type == CUDA_C_64F ? 4 : 1;
}

EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                                   int n, int k, const void *alpha, const void *A, cudaDataType Atype, int lda,
                                   const void *B, cudaDataType Btype, int ldb, const void *beta, void *C,
                                   cudaDataType Ctype, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo) {
  return operations(handle, 2. * parts_of(Ctype) * m * n * k);
}

EXPORT cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                                    int n, int k, const float *alpha, const void *A, cudaDataType Atype, int lda,
                                    const void *B, cudaDataType Btype, int ldb, const float *beta, void *C,
                                    cudaDataType Ctype, int ldc) {
  return operations(handle, 2. * m * n * k);
}

EXPORT cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                                 cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                                 const void *A, cudaDataType Atype, int lda, long long strideA,
                                                 const void *B, cudaDataType Btype, int ldb, long long strideB,
                                                 const void *beta, void *C, cudaDataType Ctype, int ldc,
                                                 long long strideC, int count, cublasComputeType_t compute,
                                                 cublasGemmAlgo_t algo) {
  return operations(handle, 2. * parts_of(Ctype) * m * n * k * count);
}

/* ---- scalar products, whose result stays on the card ---- */

static cublasStatus_t dot(const char *call, cublasHandle_t handle, double flop) {
  if (handle && of(handle)->pointers == CUBLAS_POINTER_MODE_HOST)
    return refuse_because(call, CUBLAS_STATUS_NOT_SUPPORTED, "the pretended GPU computes no number for the host");
  return operations(handle, flop);
}

#define DOT(name, type, parts)                                                                                      \
  EXPORT cublasStatus_t name(cublasHandle_t handle, int n, const type *x, int incx, const type *y, int incy,        \
                             type *result) {                                                                        \
    return dot(#name, handle, 2. * parts * n);                                                                      \
  }
DOT(cublasSdot_v2, float, 1)
DOT(cublasDdot_v2, double, 1)
DOT(cublasCdotu_v2, cuComplex, 4)
DOT(cublasCdotc_v2, cuComplex, 4)
DOT(cublasZdotu_v2, cuDoubleComplex, 4)
DOT(cublasZdotc_v2, cuDoubleComplex, 4)

EXPORT cublasStatus_t cublasDotEx(cublasHandle_t handle, int n, const void *x, cudaDataType xtype, int incx,
                                  const void *y, cudaDataType ytype, int incy, void *result, cudaDataType type,
                                  cudaDataType execution) {
  return dot("cublasDotEx", handle, 2. * n);
}
