/* Handles of streams and events, which are never valid again once given back. */
#ifndef VDNNSIM_PRETEND_HANDLES_H
#define VDNNSIM_PRETEND_HANDLES_H

#include <stddef.h>
#include <stdint.h>

struct table {
  struct entry {
    void *item;
    uint64_t generation;
  } *entries;
  size_t count, room;
  size_t *unused, unused_count;
  uintptr_t kind; /* a multiple of 16 below 256, which tells handles of one table from those of another */
};

/* What a handle stands for; NULL if it never was one, or is no more. */
void *item_of(const struct table *table, const void *handle);
/* A handle for an item that malloc gave; NULL where there are too many. */
void *add_item(struct table *table, void *item);
/* Free the item of a handle. */
void remove_item(struct table *table, const void *handle);

#endif
