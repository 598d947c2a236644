/* The capacity of each GPU, which addresses belong to it, and where their bytes lie.
 *
 * Addresses of a GPU are taken from this process and never get memory behind them, so that code of the host that follows
 * one ends with SIGSEGV, as it does beside a real GPU. The bytes of a block lie elsewhere, where the host backs a page
 * when something is written to it. What the runtime copies and fills, and functions of the host that stand in for
 * kernels, go there.
 */
#define _GNU_SOURCE
#include "memory.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct gpu gpus[MOST_GPUS];
struct extents reservations;

/* ---- the capacity ---- */

bool has_context(int gpu) { return gpus[gpu].begun; }

bool take(int gpu, size_t bytes) {
  if (gpus[gpu].used + bytes > settings.memory_bytes) return false;
  gpus[gpu].used += bytes;
  if (gpus[gpu].used > gpus[gpu].peak) gpus[gpu].peak = gpus[gpu].used;
  return true;
}

void give_back(int gpu, size_t bytes) { gpus[gpu].used -= bytes; }

/* ---- what may be accessed ---- */

struct extents *accessible(int gpu) { return &gpus[gpu].blocks; }

/* A reservation has the GPU of the first memory that is mapped there. */
int reserved_by(const void *address) {
  const struct extent *reservation = extent_at(&reservations, address);
  return reservation ? reservation->gpu : -1;
}

int gpu_of(const void *address) {
  for (int gpu = 0; gpu < settings.gpus; gpu++) {
    const char *start = gpus[gpu].addresses;
    if (gpus[gpu].begun && (const char *)address >= start && (const char *)address < start + SPAN) return gpu;
  }
  return reserved_by(address);
}

/* What was asked for of a GPU that an address lies in; NULL if nothing was. Needs no lock where nobody else has it. */
static const struct extent *allocation_at(int gpu, const void *address) {
  const struct extent *block = extent_at(&gpus[gpu].blocks, address);
  return block && block->shared ? extent_at(&gpus[gpu].small, address) : block;
}

/* Mapped ranges lie side by side without being one. */
bool allocated(const void *address, size_t bytes) {
  int gpu = gpu_of(address);
  if (gpu < 0) return false;
  const char *from = address, *end = from + bytes;
  do {
    const struct extent *block = extent_at(&gpus[gpu].blocks, from);
    if (!block) return false;
    if (block->shared && !extent_at(&gpus[gpu].small, from)) return false;
    from = block->start + block->bytes;
  } while (from < end);
  return true;
}

void *bytes_at(const void *address) {
  int gpu = gpu_of(address);
  const struct extent *block = gpu < 0 ? NULL : extent_at(accessible(gpu), address);
  return block ? block->host + ((const char *)address - block->start) : (void *)address;
}

EXPORT void *pretend_bytes_at(const void *address) {
  hold_lock();
  void *bytes = bytes_at(address);
  release_lock();
  return bytes;
}

/* ---- the sentence that an access ends with ---- */

static struct sigaction before;

/* Without the lock, which may be held where the access is: at worst the sentence is wrong, and the process ends anyway.
 * What was there before, as Python's faulthandler, is next: the access is tried again when this returns. */
static void tell(int number, siginfo_t *info, void *context) {
  bool is_access = info->si_code > 0; /* and not a signal that a process has sent */
  int gpu = is_access ? gpu_of(info->si_addr) : -1;
  if (gpu >= 0) {
    char line[256], where[96] = "nothing is allocated there";
    const struct extent *asked = allocation_at(gpu, info->si_addr);
    if (asked)
      snprintf(where, sizeof where, "byte %zu of an allocation of %zu", (size_t)((char *)info->si_addr - asked->start),
               asked->bytes);
    int length = snprintf(line, sizeof line, "host access to device memory at %p of pretended GPU %d: %s\n",
                          info->si_addr, gpu, where);
    if (write(STDERR_FILENO, line, (size_t)length) < 0) { /* there is nobody to tell */
    }
  }
  sigaction(number, &before, NULL);
  if (!is_access) raise(number);
}

static void tell_host_access(void) {
  static bool begun;
  if (begun) return;
  begun = true;
  struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before);
}

/* ---- the context ---- */

void begin_context(int gpu) {
  if (gpus[gpu].begun) return;
  gpus[gpu].begun = true;
  char *addresses = mmap(NULL, SPAN + DRIVER_BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) abort();
  gpus[gpu].addresses = (char *)(((uintptr_t)addresses + DRIVER_BLOCK - 1) / DRIVER_BLOCK * DRIVER_BLOCK);
  tell_host_access();
  take(gpu, settings.context_bytes);
}
