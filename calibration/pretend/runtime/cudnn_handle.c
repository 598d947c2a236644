/* Handles of cuDNN, the description of the card, and who gets the stand-ins.
 *
 * PyTorch links cuDNN and so finds the stand-ins first, for they are preloaded. NVIDIA's Python package `cudnn` looks
 * its functions up in the library that it opened; it gets the stand-ins from `dlsym`, which is therefore one itself.
 */
#define _GNU_SOURCE
#include "cudnn_handle.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcudnn.so.9"

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
  if (!card) refuse_because(call, 0, "cuDNN cannot read the description of the card (cuDNN 9.8 and later can)");
  return card;
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

EXPORT void cudnnGetLastErrorString(char *message, size_t bytes) {
  const char *refusal = last_refusal();
  if (*refusal)
    snprintf(message, bytes, "%s", refusal);
  else
    REAL(cudnnGetLastErrorString)(message, bytes);
}
