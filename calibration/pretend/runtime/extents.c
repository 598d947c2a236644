#include <stdlib.h>
#include <string.h>

#include "memory.h"

size_t extents_from(const struct extents *extents, const char *address) {
  size_t low = 0, high = extents->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (extents->at[middle].start <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

struct extent *extent_at(const struct extents *extents, const void *address) {
  size_t next = extents_from(extents, address);
  if (!next) return NULL;
  struct extent *extent = &extents->at[next - 1];
  return (const char *)address < extent->start + extent->bytes ? extent : NULL;
}

struct extent *add_extent(struct extents *extents, struct extent extent) {
  if (extents->count == extents->room) {
    extents->room = extents->room ? 2 * extents->room : 64;
    extents->at = realloc(extents->at, extents->room * sizeof *extents->at);
  }
  size_t where = extents_from(extents, extent.start);
  memmove(extents->at + where + 1, extents->at + where, (extents->count - where) * sizeof *extents->at);
  extents->at[where] = extent;
  extents->count++;
  return &extents->at[where];
}

void remove_extent(struct extents *extents, struct extent *extent) {
  size_t where = (size_t)(extent - extents->at);
  extents->count--;
  memmove(extent, extent + 1, (extents->count - where) * sizeof *extent);
}
