/* cuDNN's functions for whole layers that PyTorch calls: batch normalization, recurrent networks, CTC, grids.
 *
 * Their sizes are NVIDIA's own answers. These functions read no more of a handle than the version of the card, so they
 * are given a block of zeros with that version in its place, which is found by trying: one answer hangs on it alone.
 */
#include "cudnn_handle.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the version of the card in a handle ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int place = -1; /* of the version, in words; BLOCK_WORDS if cuDNN does not look for one in a block of ours */

/* Whether cuDNN takes a block for a card that normalizes bfloat16, which those before version 800 do not. */
static int takes_bfloat16(struct handle *block) {
  cudnnTensorDescriptor_t map, channels;
  size_t bytes;
  REAL(cudnnCreateTensorDescriptor)(&map);
  REAL(cudnnCreateTensorDescriptor)(&channels);
  REAL(cudnnSetTensor4dDescriptor)(map, CUDNN_TENSOR_NHWC, CUDNN_DATA_BFLOAT16, 2, 8, 4, 4);
  REAL(cudnnDeriveBNTensorDescriptor)(channels, map, CUDNN_BATCHNORM_SPATIAL_PERSISTENT);
  cudnnStatus_t status = REAL(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize)(
      (cudnnHandle_t)block, CUDNN_BATCHNORM_SPATIAL_PERSISTENT, CUDNN_BATCHNORM_OPS_BN, map, NULL, map, channels, NULL,
      &bytes);
  REAL(cudnnDestroyTensorDescriptor)(map);
  REAL(cudnnDestroyTensorDescriptor)(channels);
  return status == CUDNN_STATUS_SUCCESS;
}

static void find_place(void) {
  struct handle *block = calloc(1, sizeof *block);
  if (!block) return;
  int words = takes_bfloat16(block) ? 0 : 256;
  for (place = 0; place < words; place++) {
    block->block[place] = 900;
    if (takes_bfloat16(block)) break;
    block->block[place] = 0;
  }
  if (place == words) place = BLOCK_WORDS;
  free(block);
}

/* A handle that NVIDIA's functions may be given. */
static cudnnHandle_t readable(cudnnHandle_t handle) {
  pthread_mutex_lock(&lock);
  if (place < 0) find_place();
  const char *words = getenv("VDNNSIM_PRETEND_CUDNN"), *version = words ? strstr(words, "\"deviceVer\":") : NULL;
  if (version && place >= 0 && place < BLOCK_WORDS)
    handle_of(handle)->block[place] = (int32_t)strtol(version + strlen("\"deviceVer\":"), NULL, 10);
  pthread_mutex_unlock(&lock);
  return handle;
}

static double bytes_of(cudnnTensorDescriptor_t tensor) {
  size_t bytes = 0;
  return tensor && !REAL(cudnnGetTensorSizeInBytes)(tensor, &bytes) ? (double)bytes : 0;
}

/* Put a pass over memory on the stream. */
static cudnnStatus_t pass(cudnnHandle_t handle, double bytes) {
  pretend_busy(handle_of(handle)->stream, seconds_of_bytes(bytes));
  return CUDNN_STATUS_SUCCESS;
}

/* ---- batch normalization ---- */

EXPORT cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t z, const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t channels,
    const cudnnActivationDescriptor_t activation, size_t *bytes) {
  return REAL(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize)(readable(handle), mode, operations, x, z, y,
                                                                       channels, activation, bytes);
}

EXPORT cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t channels,
    const cudnnActivationDescriptor_t activation, size_t *bytes) {
  return REAL(cudnnGetBatchNormalizationBackwardExWorkspaceSize)(readable(handle), mode, operations, x, y, dy, dz, dx,
                                                                channels, activation, bytes);
}

EXPORT cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t x, size_t *bytes) {
  return REAL(cudnnGetBatchNormalizationTrainingExReserveSpaceSize)(readable(handle), mode, operations, activation, x,
                                                                   bytes);
}

/* X is read for its statistics and again to be normalized into Y. */
EXPORT cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations, const void *alpha,
    const void *beta, const cudnnTensorDescriptor_t x, const void *of_x, const cudnnTensorDescriptor_t z,
    const void *of_z, const cudnnTensorDescriptor_t y, void *of_y, const cudnnTensorDescriptor_t channels,
    const void *scale, const void *bias, double factor, void *running_mean, void *running_variance, double epsilon,
    void *saved_mean, void *saved_inverse_variance, cudnnActivationDescriptor_t activation, void *workspace,
    size_t workspace_bytes, void *reserve, size_t reserve_bytes) {
  return pass(handle, 3 * bytes_of(x));
}

EXPORT cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const cudnnTensorDescriptor_t x, const void *of_x, const cudnnTensorDescriptor_t y, void *of_y,
    const cudnnTensorDescriptor_t channels, const void *scale, const void *bias, const void *mean,
    const void *variance, double epsilon) {
  return pass(handle, 2 * bytes_of(x));
}

/* X and dY are read for two sums and again for dX. */
EXPORT cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations, const void *alpha,
    const void *beta, const void *alpha_weights, const void *beta_weights, const cudnnTensorDescriptor_t x,
    const void *of_x, const cudnnTensorDescriptor_t y, const void *of_y, const cudnnTensorDescriptor_t dy,
    const void *of_dy, const cudnnTensorDescriptor_t dz, void *of_dz, const cudnnTensorDescriptor_t dx, void *of_dx,
    const cudnnTensorDescriptor_t channels, const void *scale, const void *bias, void *scale_gradient,
    void *bias_gradient, double epsilon, const void *saved_mean, const void *saved_inverse_variance,
    cudnnActivationDescriptor_t activation, void *workspace, size_t workspace_bytes, void *reserve,
    size_t reserve_bytes) {
  return pass(handle, 5 * bytes_of(x));
}

/* ---- dropout's random states: of one generator for each thread that the card holds ---- */

#define BYTES_OF_GENERATOR 24

EXPORT cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *bytes) {
  *bytes = (size_t)(setting("SMS") * setting("THREADS_PER_SM") * BYTES_OF_GENERATOR);
  return CUDNN_STATUS_SUCCESS;
}

/* States that are there already are what a kernel would have left, but for their values. */
EXPORT cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle,
                                               float probability, void *states, size_t bytes,
                                               unsigned long long seed) {
  if (states) pass(handle, (double)bytes);
  return REAL(cudnnRestoreDropoutDescriptor)(dropout, handle, probability, states, bytes, seed);
}

/* ---- recurrent networks ---- */

EXPORT cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t network,
                                               cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                               size_t *workspace_bytes, size_t *reserve_bytes) {
  /* After the sizes cuDNN asks the CUDA runtime inside of it for its GPU, which is not there. */
  size_t workspace = 0, reserve = 0;
  cudnnStatus_t status =
      REAL(cudnnGetRNNTempSpaceSizes)(readable(handle), network, mode, x, &workspace, &reserve);
  if (status && !workspace)
    return (cudnnStatus_t)refuse_because("cudnnGetRNNTempSpaceSizes", (int)status,
                                         "this cuDNN tells no sizes of recurrent networks without a GPU");
  if (workspace_bytes) *workspace_bytes = workspace;
  if (reserve_bytes) *reserve_bytes = reserve;
  return CUDNN_STATUS_SUCCESS;
}

/* Every weight is multiplied by every element of every sequence once. */
static cudnnStatus_t recurrence(cudnnHandle_t handle, cudnnRNNDataDescriptor_t data, size_t weight_bytes) {
  cudnnDataType_t type;
  cudnnRNNDataLayout_t layout;
  int longest, sequences, width;
  cudnnStatus_t status =
      REAL(cudnnGetRNNDataDescriptor)(data, &type, &layout, &longest, &sequences, &width, 0, NULL, NULL);
  if (status) return status;
  double weights = (double)weight_bytes / (type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2);
  pretend_busy(handle_of(handle)->stream, seconds_of_flop(2 * weights * longest * sequences));
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t network, cudnnForwardMode_t mode,
                                     const int32_t lengths[], cudnnRNNDataDescriptor_t x, const void *of_x,
                                     cudnnRNNDataDescriptor_t y, void *of_y, cudnnTensorDescriptor_t h,
                                     const void *hx, void *hy, cudnnTensorDescriptor_t c, const void *cx, void *cy,
                                     size_t weight_bytes, const void *weights, size_t workspace_bytes,
                                     void *workspace, size_t reserve_bytes, void *reserve) {
  return recurrence(handle, x, weight_bytes);
}

EXPORT cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t network,
                                             const int32_t lengths[], cudnnRNNDataDescriptor_t y, const void *of_y,
                                             const void *of_dy, cudnnRNNDataDescriptor_t x, void *of_dx,
                                             cudnnTensorDescriptor_t h, const void *hx, const void *dhy, void *dhx,
                                             cudnnTensorDescriptor_t c, const void *cx, const void *dcy, void *dcx,
                                             size_t weight_bytes, const void *weights, size_t workspace_bytes,
                                             void *workspace, size_t reserve_bytes, void *reserve) {
  return recurrence(handle, x, weight_bytes);
}

EXPORT cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t network,
                                                cudnnWgradMode_t mode, const int32_t lengths[],
                                                cudnnRNNDataDescriptor_t x, const void *of_x,
                                                cudnnTensorDescriptor_t h, const void *hx,
                                                cudnnRNNDataDescriptor_t y, const void *of_y, size_t weight_bytes,
                                                void *gradients, size_t workspace_bytes, void *workspace,
                                                size_t reserve_bytes, void *reserve) {
  return recurrence(handle, x, weight_bytes);
}

/* ---- layers of which no more is known than that they run: as long as a launch ---- */

#define LAUNCHED(call)                                                       \
  EXPORT cudnnStatus_t launched_##call(cudnnHandle_t handle) __asm__(#call); \
  cudnnStatus_t launched_##call(cudnnHandle_t handle) { return pass(handle, 0); }
LAUNCHED(cudnnCTCLoss)
LAUNCHED(cudnnCTCLoss_v8)
LAUNCHED(cudnnSpatialTfGridGeneratorForward)
LAUNCHED(cudnnSpatialTfGridGeneratorBackward)
LAUNCHED(cudnnSpatialTfSamplerForward)
LAUNCHED(cudnnSpatialTfSamplerBackward)
