/* Handles of cuDNN, the description of the card, and who gets the stand-ins.
 *
 * PyTorch links cuDNN and so finds the stand-ins first, for they are preloaded. NVIDIA's Python package `cudnn` looks
 * its functions up in the library that it opened; it gets the stand-ins from `dlsym`, which is therefore one itself.
 */
#define _GNU_SOURCE
#include "cudnn_handle.h"

#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcudnn.so.9"
/* More words than the properties of a card have. */
#define MOST_PROPERTIES 256

/* ---- looking functions up ---- */

static void *(*dlsym_of_libc)(void *library, const char *name) __attribute__((used));

/* The stand-in that a look-up is to find, NULL if it is to go on to the C library. */
static __attribute__((used)) void *stand_in_for(void *library, const char *name) {
  /* glibc keeps this version of dlsym for x86-64 for good. */
  if (!dlsym_of_libc) *(void **)&dlsym_of_libc = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  if (strncmp(name, "cudnn", 5) || library == RTLD_DEFAULT || library == RTLD_NEXT) return NULL;
  struct link_map *opened;
  if (dlinfo(library, RTLD_DI_LINKMAP, &opened) || !strstr(opened->l_name, "/" LIBRARY)) return NULL;
  Dl_info here;
  dladdr(&handle_of, &here);
  void *stand_ins = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return stand_ins ? dlsym_of_libc(stand_ins, name) : NULL;
}

/* It jumps to the C library's, which asks who called it: for RTLD_NEXT it must be the caller of this one. */
EXPORT __attribute__((naked)) void *dlsym(void *library, const char *name) {
  __asm__(
      "push %rdi\n\t"
      "push %rsi\n\t"
      "sub $8, %rsp\n\t"
      "call stand_in_for\n\t"
      "add $8, %rsp\n\t"
      "pop %rsi\n\t"
      "pop %rdi\n\t"
      "test %rax, %rax\n\t"
      "jz 1f\n\t"
      "ret\n"
      "1:\tjmp *dlsym_of_libc(%rip)");
}

void *real_cudnn(const char *call) {
  static void *library;
  if (!library) library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
  (void)stand_in_for(NULL, "");
  void *found = library ? dlsym_of_libc(library, call) : NULL;
  if (!found) {
    fprintf(stderr, "vdnnsim: NVIDIA's cuDNN has no %s, which its header declares\n", call);
    abort();
  }
  return found;
}

/* ---- the card ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudnnBackendDescriptor_t card;

static void describe(void) {
  const char *words = getenv("VDNNSIM_PRETEND_CUDNN");
  cudnnBackendDescriptor_t made;
  if (!words || REAL(cudnnBackendCreateDescriptor)(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made)) return;
  int64_t length = (int64_t)strlen(words);
  if (!REAL(cudnnBackendSetAttribute)(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length,
                                      words) &&
      !REAL(cudnnBackendFinalize)(made))
    card = made;
}

cudnnBackendDescriptor_t described_card(const char *call) {
  pthread_once(&once, describe);
  if (!card)
    refuse_because(call, 0,
                   "this cuDNN takes no description of the card, which is too old for it; or cuDNN is, before 9.8");
  return card;
}

/* ---- what NVIDIA's functions read of a handle ---- */

/* In words, where the version of the card stands in a handle and in the description; no place if there is none. */
static int in_handle = -1, in_description = -1;
static pthread_once_t placed = PTHREAD_ONCE_INIT;

/* Whether cuDNN takes a block for a handle on a card that normalizes bfloat16, which those before 8.0 do not. */
static bool normalizes_bfloat16(struct handle *block) {
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

/* Both hold the same structure of properties, of which NVIDIA publishes no layout: so the version is looked for, in the
 * handle by an answer that hangs on it alone, in the description by its value, and all before it comes along. */
static void find_places(void) {
  struct handle *block = calloc(1, sizeof *block);
  const char *words = getenv("VDNNSIM_PRETEND_CUDNN"), *stated = words ? strstr(words, "\"deviceVer\":") : NULL;
  if (!block || !stated || !described_card("cudnnCreate")) return;
  int32_t version = (int32_t)strtol(stated + strlen("\"deviceVer\":"), NULL, 10);
  int words_of_card = (int)(malloc_usable_size(card) / sizeof(int32_t));
  for (int each = 0; each < words_of_card && in_description < 0; each++)
    if (((const int32_t *)card)[each] == version) in_description = each;
  for (int each = 0; each < MOST_PROPERTIES && in_handle < 0 && !normalizes_bfloat16(block); each++) {
    block->block[each] = 900;
    if (normalizes_bfloat16(block)) in_handle = each;
    block->block[each] = 0;
  }
  free(block);
}

cudnnHandle_t readable(cudnnHandle_t handle) {
  pthread_once(&placed, find_places);
  if (in_handle >= 0 && in_description >= in_handle)
    memcpy(handle_of(handle)->block, (const int32_t *)card + in_description - in_handle,
           sizeof(int32_t) * (size_t)(in_handle + 1));
  return handle;
}

/* ---- handles ---- */

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  if (!described_card("cudnnCreate")) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = (cudnnHandle_t)calloc(1, sizeof(struct handle));
  return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_ALLOC_FAILED;
}

EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  free(handle);
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle_of(handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
  *stream = handle_of(handle)->stream;
  return CUDNN_STATUS_SUCCESS;
}
