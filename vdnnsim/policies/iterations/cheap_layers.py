"""Cost-aware recomputation of cheap layers (Wang et al., PPoPP 2018, 3.4): the runs of an iteration that does it.

Maps of cheap layers are given up after their last reader in forward and computed again for backward, from the maps of
the layers between which they lie. A segment is what hangs together among them. Where all its maps together take no more
than the largest working set of a backward, l_peak, it is computed once for all of its backward (speed-centric);
elsewhere anew for each layer that wants one of its maps, and held for that layer alone (memory-centric). So the maximum
stays at l_peak, and little is computed more than twice.
"""

from collections import Counter
from typing import Final

from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.liveness import maps_touched
from vdnnsim.plans.schedule import Run, backward_layers, backward_of

CHEAP: Final = frozenset(
    {
        LayerKind.POOL,
        LayerKind.ACTV,
        LayerKind.BN,
        LayerKind.LRN,
        LayerKind.DROPOUT,
        LayerKind.LN,
        LayerKind.PRODUCT,
    }
)
"""The paper's POOL, ACT, LRN, BN and dropout; of what it does not know, what is of that kind: LN and products.

The others stay: CONV and FC for their cost, joins and forks because its code ends segments there, attention, recurrent
and embedding layers for their cost.
"""


def recomputed_maps(workload: Workload) -> frozenset[int]:
    """Return the maps that are given up: those that a cheap layer writes and another reads."""
    layers = workload.graph.layers
    return frozenset(
        each.index
        for each in workload.graph.maps
        if each.producer is not None and each.consumers and layers[each.producer].kind in CHEAP
    )


def largest_backward_bytes(workload: Workload) -> int:
    """Return l_peak: the maps and gradients of the kernel of backward that touches most of them."""
    return max(
        sum(
            workload.map_bytes(index)
            for touched in (maps_touched(workload, layer, phase),)
            for indices in (
                {*touched.maps_read, *touched.maps_written},
                {*touched.gradients_read, *touched.gradients_written},
            )
            for index in indices
        )
        for layer in workload.graph.layers
        for phase in layer.backward_phases
    )


def backward_with_recomputation(workload: Workload) -> list[Run]:
    """Return backward of all layers, and before each what has to be computed again for it; nothing in inference."""
    return _Recomputation(workload).runs() if workload.is_training else []


class _Recomputation:
    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._layers = workload.graph.layers
        self._maps = workload.graph.maps
        self._given_up = recomputed_maps(workload)
        self._segment_of = self._segments()
        limit_bytes = largest_backward_bytes(workload)
        sizes: Counter[int] = Counter()
        for index in self._given_up:
            sizes[self._segment_of[index]] += workload.map_bytes(index)
        self._small = {segment for segment, nbytes in sizes.items() if nbytes <= limit_bytes}
        # Maps of small segments that were computed again and are held.
        self._held: set[int] = set()
        self._times: Counter[int] = Counter()

    def runs(self) -> list[Run]:
        """Return all of backward."""
        runs: list[Run] = []
        for layer in backward_layers(self._workload):
            missing = self._given_up.intersection(layer.saved_maps) - self._held
            if missing:
                runs += self._recompute(missing, layer)
            runs += backward_of(layer)
        return runs

    def _segments(self) -> dict[int, int]:
        """Return a number for each map that is given up, equal for those that hang together."""
        segment_of: dict[int, int] = {}
        for index in sorted(self._given_up):
            below = [segment_of[x] for x in self._layers[self._writers_of(index)[0]].inputs if x in segment_of]
            segment_of[index] = min(below, default=index)
            joined = dict.fromkeys(below, segment_of[index])
            segment_of |= {each: joined[number] for each, number in segment_of.items() if number in joined}
        return segment_of

    def _writers_of(self, index: int) -> tuple[int, ...]:
        """Return the layers that write a map, those in place included."""
        producer = self._maps[index].producer
        assert producer is not None, "a layer writes it"
        return (producer, *self._maps[index].rewriters)

    def _recompute(self, missing: set[int] | frozenset[int], layer: Layer) -> list[Run]:
        wanted = set(missing)
        for segment in {self._segment_of[index] for index in missing} & self._small:
            wanted.update(
                index
                for index in self._given_up - self._held
                if self._segment_of[index] == segment
                and any(reader <= layer.index for reader in self._maps[index].saved_for)
            )
        again: list[Layer] = []
        pending = set(wanted)
        index = max(self._writers_of(each)[-1] for each in wanted)
        while pending:
            each = self._layers[index]
            index -= 1
            if each.output not in wanted:
                continue
            again.append(each)
            if not each.in_place:
                pending.remove(each.output)
                below = self._given_up.intersection(each.inputs) - self._held - wanted
                wanted |= below
                pending |= below
        self._held.update(index for index in wanted if self._segment_of[index] in self._small)
        for each in again:
            self._times[each.index] += 1
        return [Run(each, Phase.FORWARD, repeat=self._times[each.index]) for each in reversed(again)]
