/* Extents of addresses, and the memory of the GPUs (addresses.c) as the files share it that hand it out: blocks
 * (memory.c), and the driver's calls that map memory behind addresses (virtual_memory.c). */
#ifndef VDNNSIM_PRETEND_MEMORY_H
#define VDNNSIM_PRETEND_MEMORY_H

#include "runtime.h"

struct extent {
  char *start;
  size_t bytes;
  char *host;      /* where the bytes of device memory lie that the host may touch */
  bool shared;     /* a block that small requests share */
  bool mapped;     /* by the virtual memory calls */
  bool registered; /* memory that was pinned where it lay */
  int gpu;
  uint64_t handle; /* of the memory that is mapped here */
};
struct extents {
  struct extent *at; /* by address, apart from each other */
  size_t count, room;
};

/* The first extent that begins behind an address, as its position. */
size_t extents_from(const struct extents *extents, const char *address);
/* The extent that an address lies in; NULL if there is none. */
struct extent *extent_at(const struct extents *extents, const void *address);
struct extent *add_extent(struct extents *extents, struct extent extent);
void remove_extent(struct extents *extents, struct extent *extent);

/* More addresses than any card has memory, so that gaps between blocks are never what is missing. */
#define SPAN ((size_t)4 << 40)

struct gpu {
  bool begun;
  char *addresses;
  size_t used, peak;
  struct extents blocks; /* what is accessible: blocks of the driver and mapped ranges of the virtual memory calls */
  struct extents small;  /* what was asked for in shared blocks */
};
extern struct gpu gpus[MOST_GPUS];
/* Addresses that programs reserved to map memory behind them. */
extern struct extents reservations;

/* Take memory of a GPU without an address; false if there is not so much left. */
bool take(int gpu, size_t bytes);
void give_back(int gpu, size_t bytes);
struct extents *accessible(int gpu);
/* The GPU for which an address was reserved, -1 if it was not. */
int reserved_by(const void *address);

#endif
