#include "handles.h"

#include <stdlib.h>

/* PyTorch takes a handle whose last bit is set for one of its own streams. */
#define KIND_BITS 8
#define SLOT_BITS 20

static void *handle_of(const struct table *table, size_t slot) {
  return (void *)(table->kind | slot << KIND_BITS | table->entries[slot].generation << (KIND_BITS + SLOT_BITS));
}

static size_t slot_of(const void *handle) { return (uintptr_t)handle >> KIND_BITS & ((1 << SLOT_BITS) - 1); }

void *item_of(const struct table *table, const void *handle) {
  size_t slot = slot_of(handle);
  if (slot >= table->count || handle_of(table, slot) != handle) return NULL;
  return table->entries[slot].item;
}

void *add_item(struct table *table, void *item) {
  size_t slot;
  if (table->unused_count) {
    slot = table->unused[--table->unused_count];
  } else {
    if (table->count == (size_t)1 << SLOT_BITS) return NULL;
    if (table->count == table->room) {
      table->room = table->room ? 2 * table->room : 64;
      table->entries = realloc(table->entries, table->room * sizeof *table->entries);
      table->unused = realloc(table->unused, table->room * sizeof *table->unused);
    }
    slot = table->count++;
    table->entries[slot].generation = 0;
  }
  table->entries[slot].item = item;
  return handle_of(table, slot);
}

void remove_item(struct table *table, const void *handle) {
  size_t slot = slot_of(handle);
  free(table->entries[slot].item);
  table->entries[slot].item = NULL;
  table->entries[slot].generation++;
  table->unused[table->unused_count++] = slot;
}
