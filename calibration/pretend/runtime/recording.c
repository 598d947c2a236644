/* Work that a stream records for a graph instead of doing it. */
#include "runtime.h"

#include <stdlib.h>

static struct graph *recorded; /* of the work that was put last; NULL if it was not recorded */

static struct work *add_work(struct graph *graph) {
  if (graph->count == graph->room) {
    graph->room = graph->room ? 2 * graph->room : 64;
    graph->work = realloc(graph->work, graph->room * sizeof *graph->work);
  }
  return &graph->work[graph->count++];
}

bool record_work(struct graph *graph, enum engine engine, nanoseconds lasts) {
  recorded = graph;
  if (graph && (engine != ENGINE_NONE || lasts)) *add_work(graph) = (struct work){.engine = engine, .lasts = lasts};
  return graph;
}

bool record_move(void *to, const void *from, int value, size_t bytes) {
  if (!recorded) return false;
  struct work *work = &recorded->work[recorded->count - 1];
  if (work->bytes) work = add_work(recorded), *work = (struct work){.engine = ENGINE_NONE};
  work->to = to, work->from = from, work->value = value, work->bytes = bytes;
  return true;
}

void end_recording(void) { recorded = NULL; }
