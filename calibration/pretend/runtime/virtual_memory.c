/* The driver's calls that map memory behind reserved addresses, which PyTorch's expandable segments are made of.
 *
 * Memory made by cuMemCreate counts from then on, whether it is mapped or not. It may be mapped once at a time, and
 * what was written is lost when it is unmapped: PyTorch never maps it again elsewhere.
 */
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct made {
  uint64_t handle;
  size_t bytes;
  int gpu;
  char *mapped_at;
  bool released; /* it goes once it is unmapped, too */
};
static struct made *made;
static size_t made_count, made_room;
static uint64_t last_handle;

static struct made *made_of(uint64_t handle) {
  for (size_t each = 0; each < made_count; each++)
    if (made[each].handle == handle) return &made[each];
  return NULL;
}

static void forget(struct made *one) {
  give_back(one->gpu, one->bytes);
  *one = made[--made_count];
}

/* Where the bytes of a reserved address lie, whether or not they may be touched yet. */
static char *host_of(const char *address) {
  const struct extent *reservation = extent_at(&reservations, address);
  return reservation->host + (address - reservation->start);
}

static CUresult answer(CUresult result) {
  leave(cudaSuccess);
  return result;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags which) {
  (void)properties;
  (void)which;
  *granularity = DRIVER_BLOCK;
  return CUDA_SUCCESS;
}

/* A later reservation lies above an earlier one where that is free: PyTorch fills the lower one first, and the simulator
 * takes the older one for it. What NVIDIA's driver does nobody says. */
static char *reserve_behind = (char *)(1ull << 40);

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags) {
  (void)wish;
  if (!bytes || bytes % DRIVER_BLOCK || flags || alignment > DRIVER_BLOCK) return CUDA_ERROR_INVALID_VALUE;
  if (enter_context()) return CUDA_ERROR_NOT_INITIALIZED;
  size_t room = bytes + DRIVER_BLOCK;
  char *start = mmap(reserve_behind, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return answer(CUDA_ERROR_OUT_OF_MEMORY);
  char *aligned = (char *)(((uintptr_t)start + DRIVER_BLOCK - 1) / DRIVER_BLOCK * DRIVER_BLOCK);
  if (aligned > start) munmap(start, (size_t)(aligned - start));
  munmap(aligned + bytes, (size_t)(start + room - (aligned + bytes)));
  char *host = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (host == MAP_FAILED) {
    munmap(aligned, bytes);
    return answer(CUDA_ERROR_OUT_OF_MEMORY);
  }
  if (aligned + bytes > reserve_behind) reserve_behind = aligned + bytes;
  add_extent(&reservations, (struct extent){.start = aligned, .bytes = bytes, .host = host, .gpu = current_gpu()});
  *address = (CUdeviceptr)aligned;
  return answer(CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  if (enter_context()) return CUDA_ERROR_NOT_INITIALIZED;
  struct extent *reservation = extent_at(&reservations, (void *)address);
  if (!reservation || reservation->start != (char *)address || reservation->bytes != bytes)
    return answer(CUDA_ERROR_INVALID_VALUE);
  for (size_t each = 0; each < made_count; each++) {
    const char *mapped = made[each].mapped_at;
    if (mapped >= reservation->start && mapped < reservation->start + bytes) return answer(CUDA_ERROR_INVALID_VALUE);
  }
  munmap(reservation->start, bytes);
  munmap(reservation->host, bytes);
  remove_extent(&reservations, reservation);
  return answer(CUDA_SUCCESS);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
  if (!bytes || bytes % DRIVER_BLOCK || flags || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  int gpu = properties->location.id;
  if (enter_context()) return CUDA_ERROR_NOT_INITIALIZED;
  if (gpu < 0 || gpu >= settings.gpus) return answer(CUDA_ERROR_INVALID_DEVICE);
  begin_context(gpu);
  if (!take(gpu, bytes)) return answer(CUDA_ERROR_OUT_OF_MEMORY);
  if (made_count == made_room) {
    made_room = made_room ? 2 * made_room : 256;
    made = realloc(made, made_room * sizeof *made);
  }
  *handle = ++last_handle;
  made[made_count++] = (struct made){.handle = *handle, .bytes = bytes, .gpu = gpu};
  return answer(CUDA_SUCCESS);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (enter_context()) return CUDA_ERROR_NOT_INITIALIZED;
  struct made *one = made_of(handle);
  if (!one || one->released) return answer(CUDA_ERROR_INVALID_VALUE);
  if (one->mapped_at) one->released = true;
  else forget(one);
  return answer(CUDA_SUCCESS);
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  if (enter_context()) return CUDA_ERROR_NOT_INITIALIZED;
  struct made *one = made_of(handle);
  char *start = (char *)address;
  struct extent *reservation = extent_at(&reservations, start);
  bool fits = one && reservation && start + bytes <= reservation->start + reservation->bytes &&
              !(address % DRIVER_BLOCK) && bytes == one->bytes && !offset && !flags;
  if (!fits || one->released) return answer(CUDA_ERROR_INVALID_VALUE);
  for (size_t each = 0; each < made_count; each++) {
    const char *mapped = made[each].mapped_at;
    if (mapped && mapped < start + bytes && start < mapped + made[each].bytes) return answer(CUDA_ERROR_INVALID_VALUE);
  }
  if (one->mapped_at) {
    leave(cudaSuccess);
    name_absent("cuMemMap of memory that is mapped elsewhere");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  one->mapped_at = start;
  reservation->gpu = one->gpu;
  return answer(CUDA_SUCCESS);
}

/* All of a range, which may be several mappings; false if there is anything else in it. */
static bool mappings_fill(char *start, size_t bytes) {
  size_t filled = 0;
  for (size_t each = 0; each < made_count; each++) {
    char *mapped = made[each].mapped_at;
    if (!mapped || mapped + made[each].bytes <= start || mapped >= start + bytes) continue;
    if (mapped < start || mapped + made[each].bytes > start + bytes) return false;
    filled += made[each].bytes;
  }
  return filled == bytes;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descriptions, size_t count) {
  if (enter_context()) return CUDA_ERROR_NOT_INITIALIZED;
  char *start = (char *)address;
  if (!count || !mappings_fill(start, bytes)) return answer(CUDA_ERROR_INVALID_VALUE);
  /* Any GPU that may read and write lets the runtime do it where the bytes lie. */
  bool may = false;
  for (size_t each = 0; each < count; each++) may |= descriptions[each].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (!may) return answer(CUDA_ERROR_INVALID_VALUE);
  char *host = host_of(start);
  if (mprotect(host, bytes, PROT_READ | PROT_WRITE)) return answer(CUDA_ERROR_OUT_OF_MEMORY);
  struct extents *blocks = accessible(reserved_by(start));
  for (size_t each = 0; each < made_count; each++) {
    const struct made *one = &made[each];
    char *mapped = one->mapped_at;
    if (!mapped || mapped < start || mapped >= start + bytes || extent_at(blocks, mapped)) continue;
    struct extent block = {.start = mapped, .bytes = one->bytes, .host = host + (mapped - start), .mapped = true};
    add_extent(blocks, block);
  }
  return answer(CUDA_SUCCESS);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  if (enter_context()) return CUDA_ERROR_NOT_INITIALIZED;
  char *start = (char *)address;
  if (!mappings_fill(start, bytes)) return answer(CUDA_ERROR_INVALID_VALUE);
  settle_bytes(start, bytes);
  struct extents *blocks = accessible(reserved_by(start));
  for (size_t each = made_count; each-- > 0;) {
    struct made *one = &made[each];
    if (!one->mapped_at || one->mapped_at < start || one->mapped_at >= start + bytes) continue;
    struct extent *block = extent_at(blocks, one->mapped_at);
    if (block) remove_extent(blocks, block);
    one->mapped_at = NULL;
    if (one->released) forget(one);
  }
  char *host = host_of(start);
  madvise(host, bytes, MADV_DONTNEED);
  mprotect(host, bytes, PROT_NONE);
  return answer(CUDA_SUCCESS);
}
