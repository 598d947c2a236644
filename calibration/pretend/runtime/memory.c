/* Blocks of device memory, and pinned memory of the host.
 *
 * The driver hands out blocks of 2 MiB. What is larger than 1 MiB has blocks of its own, at the lowest addresses that
 * are free; smaller requests share blocks, at multiples of 512 bytes, in the smallest gap that holds them. A block that
 * nothing lies in any more goes back at once. (Measured by others on a driver of version 5xx; their figures and source
 * stand in vdnnsim/memory/cuda_malloc.py.) The bytes of a block are gone when it is freed.
 */
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SHARED_AT_MOST MIB
#define SHARED_GRANULE ((size_t)512)

static struct extents pins;

static size_t rounded_up(size_t bytes, size_t granule) { return (bytes + granule - 1) / granule * granule; }

/* ---- blocks ---- */

/* The lowest addresses that are free; NULL if there is no memory left. */
static char *take_block(struct gpu *gpu, size_t bytes, bool shared) {
  if (!take((int)(gpu - gpus), bytes)) return NULL;
  char *start = gpu->addresses;
  for (size_t each = 0; each < gpu->blocks.count; each++) {
    const struct extent *block = &gpu->blocks.at[each];
    if (block->start < start) continue; /* of another reservation */
    if (block->start >= start + bytes) break;
    start = block->start + block->bytes;
  }
  char *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (host == MAP_FAILED) {
    give_back((int)(gpu - gpus), bytes);
    return NULL;
  }
  add_extent(&gpu->blocks, (struct extent){.start = start, .bytes = bytes, .host = host, .shared = shared});
  return start;
}

static void free_block(struct gpu *gpu, struct extent *block) {
  munmap(block->host, block->bytes);
  give_back((int)(gpu - gpus), block->bytes);
  remove_extent(&gpu->blocks, block);
}

/* The smallest gap of the shared blocks that holds so many bytes; NULL if none does. */
static char *smallest_gap(const struct gpu *gpu, size_t bytes) {
  char *best = NULL;
  size_t best_bytes = SIZE_MAX;
  for (size_t each = 0; each < gpu->blocks.count; each++) {
    const struct extent *block = &gpu->blocks.at[each];
    if (!block->shared) continue;
    char *gap = block->start, *end = block->start + block->bytes;
    for (size_t next = extents_from(&gpu->small, block->start - 1); gap < end; next++) {
      const struct extent *asked = next < gpu->small.count ? &gpu->small.at[next] : NULL;
      char *until = asked && asked->start < end ? asked->start : end;
      size_t gap_bytes = (size_t)(until - gap);
      if (gap_bytes >= bytes && gap_bytes < best_bytes) {
        best = gap;
        best_bytes = gap_bytes;
      }
      gap = until == end ? end : asked->start + asked->bytes;
    }
  }
  return best;
}

static char *take_small(struct gpu *gpu, size_t bytes) {
  bytes = rounded_up(bytes, SHARED_GRANULE);
  char *start = smallest_gap(gpu, bytes);
  if (!start) start = take_block(gpu, DRIVER_BLOCK, true);
  if (start) add_extent(&gpu->small, (struct extent){.start = start, .bytes = bytes});
  return start;
}

static void free_small(struct gpu *gpu, struct extent *asked) {
  struct extent *block = extent_at(&gpu->blocks, asked->start);
  remove_extent(&gpu->small, asked);
  size_t next = extents_from(&gpu->small, block->start - 1);
  bool empty = next == gpu->small.count || gpu->small.at[next].start >= block->start + block->bytes;
  if (empty) free_block(gpu, block);
}

cudaError_t cudaMalloc(void **address, size_t bytes) {
  cudaError_t error = enter_context();
  if (error) return error;
  *address = NULL;
  if (!bytes) return leave(cudaSuccess);
  counts[COUNT_MALLOC]++;
  struct gpu *gpu = &gpus[current_gpu()];
  bool fits = bytes <= settings.memory_bytes;
  if (fits) *address = bytes > SHARED_AT_MOST ? take_block(gpu, rounded_up(bytes, DRIVER_BLOCK), false)
                                              : take_small(gpu, bytes);
  return leave(*address ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* Waits for all work of its GPU first, as the driver does. */
cudaError_t cudaFree(void *address) {
  cudaError_t error = enter_context();
  if (error) return error;
  if (!address) return leave(cudaSuccess);
  int number = gpu_of(address);
  if (number < 0) return leave(cudaErrorInvalidValue);
  wait_until(all_done(number));
  struct gpu *gpu = &gpus[number];
  struct extent *asked = extent_at(&gpu->small, address), *block = extent_at(&gpu->blocks, address);
  struct extent *freed = asked ? asked : block;
  if (!freed || freed->start != (char *)address || freed->mapped || (block->shared && !asked))
    return leave(cudaErrorInvalidValue);
  counts[COUNT_FREE]++;
  if (asked) free_small(gpu, asked);
  else free_block(gpu, block);
  return leave(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
  cudaError_t error = enter_context();
  if (error) return error;
  const struct gpu *gpu = &gpus[current_gpu()];
  *left = settings.memory_bytes > gpu->used ? settings.memory_bytes - gpu->used : 0;
  *all = settings.memory_bytes;
  return leave(cudaSuccess);
}

/* ---- pinned memory of the host ---- */

bool pinned(const void *address) { return extent_at(&pins, address) != NULL; }

static void pin(void *address, size_t bytes, bool registered) {
  add_extent(&pins, (struct extent){.start = address, .bytes = bytes, .registered = registered});
  counts[COUNT_PIN]++;
  spend(settings.pin_latency + in_nanoseconds((double)bytes / settings.pin_bytes_per_s));
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags) {
  (void)flags;
  cudaError_t error = enter_context();
  if (error) return error;
  *address = NULL;
  if (!bytes) return leave(cudaSuccess);
  void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return leave(cudaErrorMemoryAllocation);
  pin(start, bytes, false);
  *address = start;
  return leave(cudaSuccess);
}

cudaError_t cudaFreeHost(void *address) {
  cudaError_t error = enter_context();
  if (error) return error;
  if (!address) return leave(cudaSuccess);
  wait_until(all_done(-1));
  struct extent *found = extent_at(&pins, address);
  if (!found || found->start != (char *)address || found->registered) return leave(cudaErrorInvalidValue);
  munmap(found->start, found->bytes);
  remove_extent(&pins, found);
  return leave(cudaSuccess);
}

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags) {
  (void)flags;
  cudaError_t error = enter_context();
  if (error) return error;
  if (!address || !bytes) return leave(cudaErrorInvalidValue);
  const char *start = address;
  size_t next = extents_from(&pins, start);
  bool overlaps = pinned(start) || (next < pins.count && pins.at[next].start < start + bytes);
  if (overlaps) return leave(cudaErrorHostMemoryAlreadyRegistered);
  pin(address, bytes, true);
  return leave(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *address) {
  cudaError_t error = enter_context();
  if (error) return error;
  wait_until(all_done(-1));
  struct extent *found = extent_at(&pins, address);
  if (!found || found->start != (char *)address || !found->registered) return leave(cudaErrorHostMemoryNotRegistered);
  remove_extent(&pins, found);
  return leave(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address) {
  cudaError_t error = enter();
  if (error) return error;
  memset(attributes, 0, sizeof *attributes);
  int gpu = gpu_of(address);
  attributes->hostPointer = gpu < 0 ? (void *)address : NULL;
  attributes->device = gpu;
  if (gpu >= 0) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = (void *)address;
  } else if (pinned(address)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = current_gpu();
    attributes->devicePointer = (void *)address;
  } else {
    attributes->type = cudaMemoryTypeUnregistered;
  }
  return leave(cudaSuccess);
}

/* ---- for the tests and the command, by ctypes ---- */

EXPORT size_t pretend_used_bytes(int gpu) {
  return gpu >= 0 && gpu < MOST_GPUS ? gpus[gpu].used : 0;
}
EXPORT size_t pretend_peak_bytes(int gpu) {
  return gpu >= 0 && gpu < MOST_GPUS ? gpus[gpu].peak : 0;
}
EXPORT void pretend_reset_peak(int gpu) {
  if (gpu >= 0 && gpu < MOST_GPUS) gpus[gpu].peak = gpus[gpu].used;
}
EXPORT void pretend_set_memory_bytes(size_t bytes) {
  if (enter()) return;
  settings.memory_bytes = bytes;
  leave(cudaSuccess);
}
