/* What the host finds of device memory: nothing at its addresses, and its bytes elsewhere.
 *
 * Addresses of a GPU have no memory behind them, so that code of the host that follows one ends with SIGSEGV, as it does
 * beside a real GPU. What the runtime copies and fills, and functions of the host that stand in for kernels, go to where
 * the bytes lie.
 */
#include "memory.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

void *bytes_at(const void *address) {
  int gpu = gpu_of(address);
  const struct extent *block = gpu < 0 ? NULL : extent_at(accessible(gpu), address);
  return block ? block->host + ((const char *)address - block->start) : (void *)address;
}

EXPORT void *pretend_bytes_at(const void *address) {
  resume_lock();
  void *bytes = bytes_at(address);
  pause_lock();
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

void tell_host_access(void) {
  static bool begun;
  if (begun) return;
  begun = true;
  struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before);
}
