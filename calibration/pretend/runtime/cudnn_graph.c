/* cuDNN's graph API for a card that is described to it: plans and workspaces are NVIDIA's own.
 *
 * Wherever cuDNN is told of a handle, it is told of the description instead, unless the caller describes a card.
 * A plan that is executed takes as long as the products of its graph take at the rate of the card: so descriptors are
 * remembered with their floating-point operations, which go from operations to graphs, engines and plans.
 */
#include "cudnn_handle.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#define BUCKETS 4096
#define MOST_DIMENSIONS 8

/* The two tensors that a product's operations are counted from. */
enum part { FIRST, SECOND, NO_PART };

struct descriptor {
  cudnnBackendDescriptor_t key;
  cudnnBackendDescriptorType_t type;
  bool described; /* of a card, by the caller */
  double flop;
  cudnnBackendDescriptor_t parts[NO_PART];
  struct descriptor *next;
};

static struct descriptor *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct descriptor **place_of(cudnnBackendDescriptor_t key) {
  struct descriptor **place = &buckets[((uintptr_t)key >> 4) % BUCKETS];
  while (*place && (*place)->key != key) place = &(*place)->next;
  return place;
}

static void forget(cudnnBackendDescriptor_t key) {
  struct descriptor **place = place_of(key), *gone = *place;
  if (!gone) return;
  *place = gone->next;
  free(gone);
}

static void remember(cudnnBackendDescriptor_t key, cudnnBackendDescriptorType_t type) {
  forget(key);
  struct descriptor *new = calloc(1, sizeof *new);
  if (!new) return;
  new->key = key;
  new->type = type;
  *place_of(key) = new;
}

/* ---- floating-point operations ---- */

/* The dimensions of a tensor, outermost first; returns how many. */
static int64_t dimensions_of(cudnnBackendDescriptor_t tensor, int64_t dimensions[MOST_DIMENSIONS]) {
  int64_t count = 0;
  if (!tensor || REAL(cudnnBackendGetAttribute)(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
                                                MOST_DIMENSIONS, &count, dimensions))
    return 0;
  return count;
}

static double elements_of(cudnnBackendDescriptor_t tensor) {
  int64_t dimensions[MOST_DIMENSIONS], count = dimensions_of(tensor, dimensions);
  double elements = count > 0;
  for (int64_t each = 0; each < count; each++) elements *= (double)dimensions[each];
  return elements;
}

/* A dimension of a tensor; negative positions count from behind. */
static double dimension_of(cudnnBackendDescriptor_t tensor, int64_t position) {
  int64_t dimensions[MOST_DIMENSIONS], count = dimensions_of(tensor, dimensions);
  if (position < 0) position += count;
  return position >= 0 && position < count ? (double)dimensions[position] : 0;
}

static double flop_of(const struct descriptor *operation) {
  cudnnBackendDescriptor_t first = operation->parts[FIRST], second = operation->parts[SECOND];
  switch ((int)operation->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: {
      /* Y and the filters K x C/groups x R x S, or their gradients. */
      double filters = dimension_of(second, 0);
      return filters ? 2 * elements_of(first) * elements_of(second) / filters : 0;
    }
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: /* the product and its left factor, (..., M, K) */
      return 2 * elements_of(first) * dimension_of(second, -1);
#if CUDNN_VERSION >= 91300
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR: /* queries (..., S, D) and keys; by the keys, then the values */
      return 4 * elements_of(first) * dimension_of(second, -2);
#endif
#if CUDNN_VERSION >= 91700
    case CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR: /* by the keys again, and two for each product of forward */
      return 10 * elements_of(first) * dimension_of(second, -2);
#endif
    default:
      return 0;
  }
}

static enum part part_of(cudnnBackendAttributeName_t name) {
  switch ((int)name) {
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY:
    case CUDNN_ATTR_OPERATION_MATMUL_CDESC:
#if CUDNN_VERSION >= 91300
    case CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC:
#endif
#if CUDNN_VERSION >= 91700
    case CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC:
#endif
      return FIRST;
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW:
    case CUDNN_ATTR_OPERATION_MATMUL_ADESC:
#if CUDNN_VERSION >= 91300
    case CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC:
#endif
#if CUDNN_VERSION >= 91700
    case CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC:
#endif
      return SECOND;
    default:
      return NO_PART;
  }
}

/* ---- descriptors ---- */

EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made) {
  cudnnStatus_t status = REAL(cudnnBackendCreateDescriptor)(type, made);
  if (status) return status;
  pthread_mutex_lock(&lock);
  remember(*made, type);
  pthread_mutex_unlock(&lock);
  return status;
}

EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  pthread_mutex_lock(&lock);
  forget(descriptor);
  pthread_mutex_unlock(&lock);
  return REAL(cudnnBackendDestroyDescriptor)(descriptor);
}

static cudnnStatus_t describe_to(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name) {
  cudnnBackendDescriptor_t card = described_card("cudnnBackendSetAttribute");
  if (!card) return CUDNN_STATUS_NOT_INITIALIZED;
  return REAL(cudnnBackendSetAttribute)(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &card);
}

/* What a descriptor becomes by naming others: the tensors of a product, or the operations of what it is made of. */
static void refer(struct descriptor *known, cudnnBackendAttributeName_t name, int64_t count,
                  const cudnnBackendDescriptor_t *others) {
  enum part part = part_of(name);
  double flop = 0;
  if (part != NO_PART && count == 1) known->parts[part] = others[0];
  for (int64_t each = 0; each < count; each++) {
    const struct descriptor *other = *place_of(others[each]);
    if (other) flop += other->flop;
  }
  if (flop > 0) known->flop = flop;
}

EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count, const void *elements) {
  /* A graph needs neither handle nor card; its engines and plans do. */
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return describe_to(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && elements) {
    pthread_mutex_lock(&lock);
    struct descriptor *known = *place_of(descriptor);
    if (known) refer(known, name, count, elements);
    if (known && (name == CUDNN_ATTR_ENGINE_DEVICEPROP || name == CUDNN_ATTR_ENGINEHEUR_DEVICEPROP))
      known->described = true;
    pthread_mutex_unlock(&lock);
  }
  return REAL(cudnnBackendSetAttribute)(descriptor, name, type, count, elements);
}

EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t room, int64_t *count,
                                              void *elements) {
  cudnnStatus_t status = REAL(cudnnBackendGetAttribute)(descriptor, name, type, room, count, elements);
  if (status || type != CUDNN_TYPE_BACKEND_DESCRIPTOR || !elements || !count) return status;
  /* Engines of a heuristic, and whatever else is copied into the caller's descriptors, belong to the same graph. */
  pthread_mutex_lock(&lock);
  const struct descriptor *known = *place_of(descriptor);
  for (int64_t each = 0; known && each < *count && each < room; each++) {
    struct descriptor *other = *place_of(((cudnnBackendDescriptor_t *)elements)[each]);
    if (other) other->flop = known->flop;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  pthread_mutex_lock(&lock);
  struct descriptor *known = *place_of(descriptor);
  double flop = known ? flop_of(known) : 0;
  if (flop > 0) known->flop = flop;
  cudnnBackendDescriptorType_t type = known ? known->type : (cudnnBackendDescriptorType_t)0;
  bool described = known && known->described;
  pthread_mutex_unlock(&lock);
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (!described && type == CUDNN_BACKEND_ENGINE_DESCRIPTOR)
    status = describe_to(descriptor, CUDNN_ATTR_ENGINE_DEVICEPROP);
  if (!described && type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
    status = describe_to(descriptor, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  return status ? status : REAL(cudnnBackendFinalize)(descriptor);
}

EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t variant) {
  pthread_mutex_lock(&lock);
  const struct descriptor *known = *place_of(plan);
  double flop = known ? known->flop : 0;
  pthread_mutex_unlock(&lock);
  pretend_busy(handle_of(handle)->stream, seconds_of_flop(flop));
  return CUDNN_STATUS_SUCCESS;
}
