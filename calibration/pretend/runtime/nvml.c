/* What PyTorch asks of NVIDIA's management library: libnvidia-ml.so.1 is an empty one that brings this along.
 *
 * PyTorch asks it how many GPUs there are, who holds memory when there is none left, and whether memory can be shared
 * over a fabric, without looking whether the library is there. The wheels have no header of it; numbers and the struct
 * are those of its public interface.
 */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdio.h>
#include <unistd.h>

enum result { DONE = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

struct process {
  unsigned pid;
  unsigned long long used_bytes;
};

/* A handle is the address of one of these. */
static char handles[MOST_GPUS];

static int gpu_of_handle(const void *handle) {
  const char *one = handle;
  return one >= handles && one < handles + MOST_GPUS ? (int)(one - handles) : -1;
}

EXPORT enum result nvmlInit_v2(void) { return DONE; }
EXPORT enum result nvmlInit(void) { return DONE; }
EXPORT enum result nvmlShutdown(void) { return DONE; }

EXPORT enum result nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = CUDART_VERSION;
  return DONE;
}

/* All GPUs of the machine, whichever are visible to CUDA. */
EXPORT enum result nvmlDeviceGetCount_v2(unsigned *count) {
  *count = (unsigned)installed_gpus();
  return DONE;
}

EXPORT enum result nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle) {
  unsigned domain, bus;
  if (sscanf(id, "%x:%x:", &domain, &bus) != 2 || bus < 1 || bus > MOST_GPUS) return INVALID_ARGUMENT;
  *handle = &handles[bus - 1];
  return DONE;
}

/* This process is the only one on its GPUs. */
EXPORT enum result nvmlDeviceGetComputeRunningProcesses(const void *handle, unsigned *count,
                                                        struct process *processes) {
  int gpu = gpu_of_handle(handle);
  if (gpu < 0) return INVALID_ARGUMENT;
  unsigned room = *count;
  *count = 1;
  if (!room) return INSUFFICIENT_SIZE;
  processes[0] = (struct process){(unsigned)getpid(), pretend_used_bytes(gpu)};
  return DONE;
}

struct fabric {
  unsigned version;
  unsigned char cluster[16];
  unsigned status, clique;
  unsigned char state; /* 0: there is no fabric */
  unsigned health;
};

EXPORT enum result nvmlDeviceGetGpuFabricInfoV(const void *handle, struct fabric *fabric) {
  if (gpu_of_handle(handle) < 0) return INVALID_ARGUMENT;
  *fabric = (struct fabric){.version = fabric->version};
  return DONE;
}
EXPORT enum result nvmlDeviceGetNvLinkRemoteDeviceType(const void *handle, unsigned link, void *type) {
  (void)handle;
  (void)link;
  (void)type;
  return NOT_SUPPORTED;
}
EXPORT enum result nvmlDeviceGetNvLinkRemotePciInfo_v2(const void *handle, unsigned link, void *pci) {
  (void)handle;
  (void)link;
  (void)pci;
  return NOT_SUPPORTED;
}
