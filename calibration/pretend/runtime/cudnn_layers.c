/* cuDNN's functions for whole layers that PyTorch calls: batch normalization, recurrent networks, CTC, grids.
 *
 * Their sizes are NVIDIA's own answers to a handle that holds the properties of the card and nothing else.
 */
#include "cudnn_handle.h"

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

/* ---- dropout ---- */

EXPORT cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *bytes) {
  return REAL(cudnnDropoutGetStatesSize)(readable(handle), bytes);
}

/* Without states there is nothing to compute. Otherwise a kernel would set them; nothing reads them, so they count as
 * restored. */
EXPORT cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle,
                                               float probability, void *states, size_t bytes,
                                               unsigned long long seed) {
  if (!states)
    return REAL(cudnnSetDropoutDescriptor)(dropout, readable(handle), probability, states, bytes, seed);
  pass(handle, (double)bytes);
  return REAL(cudnnRestoreDropoutDescriptor)(dropout, readable(handle), probability, states, bytes, seed);
}

EXPORT cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle,
                                                   float probability, void *states, size_t bytes,
                                                   unsigned long long seed) {
  return REAL(cudnnRestoreDropoutDescriptor)(dropout, readable(handle), probability, states, bytes, seed);
}

/* ---- recurrent networks ---- */

EXPORT cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t network, size_t *bytes) {
  return REAL(cudnnGetRNNWeightSpaceSize)(readable(handle), network, bytes);
}

EXPORT cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t network, int32_t layer,
                                             size_t weight_bytes, const void *weights, int32_t product,
                                             cudnnTensorDescriptor_t matrix, void **of_matrix,
                                             cudnnTensorDescriptor_t bias, void **of_bias) {
  return REAL(cudnnGetRNNWeightParams)(readable(handle), network, layer, weight_bytes, weights, product, matrix,
                                       of_matrix, bias, of_bias);
}

/* After the sizes cuDNN asks the CUDA runtime inside of it for its GPU, which is not there. */
static int tells_sizes(cudnnHandle_t handle, cudnnRNNDescriptor_t network, cudnnForwardMode_t mode,
                       cudnnRNNDataDescriptor_t x, size_t *workspace_bytes, size_t *reserve_bytes) {
  *workspace_bytes = *reserve_bytes = 0;
  return !REAL(cudnnGetRNNTempSpaceSizes)(readable(handle), network, mode, x, workspace_bytes, reserve_bytes) ||
         *workspace_bytes;
}

/* The same network, computed by the standard algorithm; NULL if cuDNN does not make it. */
static cudnnRNNDescriptor_t standard(cudnnRNNDescriptor_t network) {
  cudnnRNNAlgo_t algorithm;
  cudnnRNNMode_t cell;
  cudnnRNNBiasMode_t bias;
  cudnnDirectionMode_t direction;
  cudnnRNNInputMode_t input;
  cudnnDataType_t data, products;
  cudnnMathType_t math;
  int32_t width, hidden, projected, layers;
  cudnnDropoutDescriptor_t dropout;
  uint32_t flags;
  cudnnRNNDescriptor_t made;
  if (REAL(cudnnGetRNNDescriptor_v8)(network, &algorithm, &cell, &bias, &direction, &input, &data, &products, &math,
                                     &width, &hidden, &projected, &layers, &dropout, &flags) ||
      REAL(cudnnCreateRNNDescriptor)(&made))
    return NULL;
  if (!REAL(cudnnSetRNNDescriptor_v8)(made, CUDNN_RNN_ALGO_STANDARD, cell, bias, direction, input, data, products,
                                      math, width, hidden, projected, layers, dropout, flags))
    return made;
  REAL(cudnnDestroyRNNDescriptor)(made);
  return NULL;
}

/* Of the algorithms that keep weights in registers cuDNN tells no sizes without a GPU; the standard one's are taken. */
EXPORT cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t network,
                                               cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                               size_t *workspace_bytes, size_t *reserve_bytes) {
  size_t workspace, reserve;
  int told = tells_sizes(handle, network, mode, x, &workspace, &reserve);
  cudnnRNNDescriptor_t other = told ? NULL : standard(network);
  if (other) {
    told = tells_sizes(handle, other, mode, x, &workspace, &reserve);
    REAL(cudnnDestroyRNNDescriptor)(other);
    pretend_log("cudnnGetRNNTempSpaceSizes: sizes of the standard algorithm, in place of a persistent one's");
  }
  if (!told)
    return (cudnnStatus_t)refuse_because("cudnnGetRNNTempSpaceSizes", CUDNN_STATUS_NOT_SUPPORTED,
                                         "this cuDNN tells no sizes of recurrent networks without a GPU");
  if (workspace_bytes) *workspace_bytes = workspace;
  if (reserve_bytes) *reserve_bytes = reserve;
  return CUDNN_STATUS_SUCCESS;
}

/* Every weight is multiplied by every element of every sequence once. */
static cudnnStatus_t recurrence(cudnnHandle_t handle, cudnnRNNDataDescriptor_t data, size_t weight_bytes) {
  cudnnDataType_t type;
  cudnnRNNDataLayout_t layout;
  int longest, sequences, width, first_length;
  double padding;
  cudnnStatus_t status = REAL(cudnnGetRNNDataDescriptor)(data, &type, &layout, &longest, &sequences, &width, 1,
                                                         &first_length, &padding);
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

/* ---- CTC, and layers of which no more is known than that they run: as long as a launch ---- */

EXPORT cudnnStatus_t cudnnGetCTCLossWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t probabilities,
                                                  const cudnnTensorDescriptor_t gradients, const int *labels,
                                                  const int *label_lengths, const int *input_lengths,
                                                  cudnnCTCLossAlgo_t algorithm, cudnnCTCLossDescriptor_t loss,
                                                  size_t *bytes) {
  return REAL(cudnnGetCTCLossWorkspaceSize)(readable(handle), probabilities, gradients, labels, label_lengths,
                                            input_lengths, algorithm, loss, bytes);
}

EXPORT cudnnStatus_t cudnnGetCTCLossWorkspaceSize_v8(cudnnHandle_t handle, cudnnCTCLossAlgo_t algorithm,
                                                     cudnnCTCLossDescriptor_t loss,
                                                     const cudnnTensorDescriptor_t probabilities,
                                                     const cudnnTensorDescriptor_t gradients, size_t *bytes) {
  return REAL(cudnnGetCTCLossWorkspaceSize_v8)(readable(handle), algorithm, loss, probabilities, gradients, bytes);
}

#define LAUNCHED(call)                                                       \
  EXPORT cudnnStatus_t launched_##call(cudnnHandle_t handle) __asm__(#call); \
  cudnnStatus_t launched_##call(cudnnHandle_t handle) { return pass(handle, 0); }
LAUNCHED(cudnnCTCLoss)
LAUNCHED(cudnnCTCLoss_v8)
LAUNCHED(cudnnSpatialTfGridGeneratorForward)
LAUNCHED(cudnnSpatialTfGridGeneratorBackward)
LAUNCHED(cudnnSpatialTfSamplerForward)
LAUNCHED(cudnnSpatialTfSamplerBackward)
