/* cuBLASLt on the pretended GPU: it offers one algorithm, without a workspace, whose product takes its time.
 *
 * PyTorch takes the workspace that it allows before it asks for an algorithm, so memory is the same whichever comes.
 */
#include "libraries.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

/* The descriptors are the caller's to see through pointers alone. */
struct product {
  cublasOperation_t transa;
};
struct layout {
  cudaDataType type;
  uint64_t rows, columns;
  int32_t count;
};

static cublasStatus_t make(void *made, size_t bytes) {
  void *new = calloc(1, bytes);
  memcpy(made, &new, sizeof new);
  return new ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t destroy(void *descriptor) {
  free(descriptor);
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                               cudaDataType scale) {
  return make(made, sizeof(struct product));
}

EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) { return destroy(descriptor); }

/* Of a product all but the order of its first operand is for kernels: epilogues, scales, biases. */
EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                                     cublasLtMatmulDescAttributes_t attribute, const void *value,
                                                     size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA && bytes == sizeof(int32_t))
    ((struct product *)descriptor)->transa = *(const int32_t *)value;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                                 uint64_t columns, int64_t ld) {
  cublasStatus_t status = make(made, sizeof(struct layout));
  if (status == CUBLAS_STATUS_SUCCESS) *(struct layout *)*made = (struct layout){type, rows, columns, 1};
  return status;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy(layout); }

EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                       size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(int32_t))
    ((struct layout *)layout)->count = *(const int32_t *)value;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) { return make(made, 1); }

EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                           cublasLtMatmulPreferenceAttributes_t attribute,
                                                           const void *value, size_t bytes) {
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                                     cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
                                                     cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D,
                                                     cublasLtMatmulPreference_t preference, int asked,
                                                     cublasLtMatmulHeuristicResult_t results[], int *offered) {
  if (asked < 1) return CUBLAS_STATUS_INVALID_VALUE;
  memset(results, 0, sizeof *results);
  results->state = CUBLAS_STATUS_SUCCESS;
  results->wavesCount = 1;
  *offered = 1;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha,
                                     const void *A, cublasLtMatrixLayout_t of_a, const void *B,
                                     cublasLtMatrixLayout_t of_b, const void *beta, const void *C,
                                     cublasLtMatrixLayout_t of_c, void *D, cublasLtMatrixLayout_t of_d,
                                     const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
                                     cudaStream_t stream) {
  const struct layout *a = (const struct layout *)of_a, *d = (const struct layout *)of_d;
  uint64_t inner = ((const struct product *)product)->transa == CUBLAS_OP_N ? a->columns : a->rows;
  int parts = d->type == CUDA_C_32F || d->type == CUDA_C_64F ? 4 : 1;
  pretend_busy(stream, seconds_of_flop(2. * parts * d->rows * d->columns * inner * d->count));
  return CUBLAS_STATUS_SUCCESS;
}
