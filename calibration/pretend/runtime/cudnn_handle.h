/* What a handle of cuDNN is on the pretended GPU, and the way to NVIDIA's own functions behind the stand-ins. */
#ifndef VDNNSIM_PRETEND_CUDNN_HANDLE_H
#define VDNNSIM_PRETEND_CUDNN_HANDLE_H

#include "libraries.h"

#include <cudnn.h>

#define BLOCK_WORDS (1 << 14)

struct handle {
  /* What functions of NVIDIA's that need no GPU may read of a handle: see `readable`. */
  int32_t block[BLOCK_WORDS];
  cudaStream_t stream;
};

static inline struct handle *handle_of(cudnnHandle_t handle) { return (struct handle *)handle; }

/* A function of NVIDIA's cuDNN, for the caller to cast. */
void *real_cudnn(const char *call);
#define REAL(call) ((__typeof__(&call))real_cudnn(#call))

/* The card in cuDNN's own words, as a descriptor; NULL, after a refusal of the call, if cuDNN takes none. */
cudnnBackendDescriptor_t described_card(const char *call);

/* A handle that NVIDIA's functions may be given if they only ask it for properties of the card: it has these where
 * cuDNN looks for them, and zeros everywhere else. */
cudnnHandle_t readable(cudnnHandle_t handle);

#endif
