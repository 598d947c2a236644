/* NCCL on the pretended GPU: no communicator is ever made, and who asks for one is told what there is instead.
 *
 * An id is handed out, for PyTorch's first rank gives it to the others before any rank begins: so all of them fail at
 * once, at the same call, and none waits for an id that never comes.
 */
#include "libraries.h"

#include <string.h>

/* As in nccl.h, which needs headers of the compiler nvcc. */
typedef int ncclResult_t;
typedef struct {
  char internal[128];
} ncclUniqueId;
#define ncclSuccess 0
#define ncclInvalidUsage 5

#define NO_COMMUNICATOR(call)                                                                                  \
  EXPORT int refused_##call(void) __asm__(#call);                                                              \
  int refused_##call(void) {                                                                                   \
    return refuse_because(#call, ncclInvalidUsage,                                                             \
                          "pretended GPUs do not talk to each other through NCCL; the backend gloo does work"); \
  }
NO_COMMUNICATOR(ncclCommInitRank)
NO_COMMUNICATOR(ncclCommInitRankConfig)
NO_COMMUNICATOR(ncclCommInitRankScalable)
NO_COMMUNICATOR(ncclCommInitAll)
NO_COMMUNICATOR(ncclMemAlloc)

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  memset(id, 0, sizeof *id);
  return ncclSuccess;
}

EXPORT const char *ncclGetLastError(void *communicator) {
  return last_refusal();
}
