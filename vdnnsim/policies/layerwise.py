"""The layer-wise iteration of vDNN (MICRO 2016, III): offload in forward, prefetch in backward, release at once.

Forward of a layer allocates its Y and workspace. If the layer is the last consumer of an X that is to be offloaded,
the copy starts with the layer's kernel on the memory stream; at the end of the layer both streams are synchronized
and X is released (III-B). Backward of a layer first searches for one layer whose X to prefetch meanwhile (Fig. 10),
and synchronizes at its end if it found one. What no search found is fetched on demand. Each map and gradient map is
released as soon as no kernel to come reads it.
"""

from collections.abc import Sequence
from enum import Enum

from vdnnsim.dnn.layers import Layer, LayerKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.operations import Stream
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.algorithms import KernelChoice
from vdnnsim.policies.offloading import OffloadingWriter


class PrefetchSearch(Enum):
    """Which layers' backward launches a prefetch.

    `fig10` is the search as printed: CONV, POOL and FC do. `fig10_without_pool` leaves POOL out, the reading under
    which VGG-16 (128) under all(m) needs the 4.8 GB that the paper reports (V-A); what only POOL would have
    prefetched is then fetched on demand. Layers that the paper does not speak of launch nothing under either: the
    loss, a concatenation, batch normalization, element-wise addition, and an in-place ACTV, which is part of the layer
    before it. So where a CONV layer is followed by a BN layer whose X was offloaded as well, one search per pair of
    them finds only one of the two maps, and the other is fetched on demand.
    """

    FIG10 = "fig10"
    FIG10_WITHOUT_POOL = "fig10_without_pool"


_LAUNCHERS = {
    PrefetchSearch.FIG10: (LayerKind.CONV, LayerKind.POOL, LayerKind.FC),
    PrefetchSearch.FIG10_WITHOUT_POOL: (LayerKind.CONV, LayerKind.FC),
}


def layerwise_plan(
    workload: Workload,
    kernels: KernelChoice,
    offloaded: frozenset[int],
    search: PrefetchSearch,
    *,
    label: str,
    algorithms: str,
) -> TrainingPlan:
    """Write the plan that offloads the feature maps with these indices."""
    writer = _LayerwiseWriter(workload, kernels, offloaded, search)
    writer.write()
    return writer.plan.finish(label, algorithms)


class _LayerwiseWriter(OffloadingWriter):
    def __init__(
        self, workload: Workload, kernels: KernelChoice, offloaded: frozenset[int], search: PrefetchSearch
    ) -> None:
        super().__init__(PlanWriter(workload), workload, kernels, offloaded)
        self._search = search
        self._away: set[int] = set()

    def _offload(self, leaving: Sequence[int], layer: Layer) -> None:
        for index in leaving:
            self.plan.offload(self._buffers.maps[index], layer.index)
        self.plan.synchronize()
        for index in leaving:
            self.plan.release(self._buffers.maps[index])
        self._away.update(leaving)

    def _backward(self, layer: Layer) -> None:
        missing = [index for index in layer.saved_maps if index in self._away]
        if missing:
            self._fetch(missing, layer, on_demand=True)
            self.plan.synchronize()
        found = self._find_prefetch_layer(layer)
        if found is not None:
            self._fetch([index for index in self._offloads[found] if index in self._away], layer, on_demand=False)
        self._compute_gradients(layer)
        if found is not None:
            self.plan.synchronize()
        self._release_last_reads(layer)

    def _find_prefetch_layer(self, layer: Layer) -> int | None:
        """Fig. 10: the closest layer below with maps away, unless a CONV layer comes first."""
        if layer.kind not in _LAUNCHERS[self._search]:
            return None
        for below in range(layer.index - 1, -1, -1):
            if any(index in self._away for index in self._offloads[below]):
                return below
            if self._layers[below].kind is LayerKind.CONV:
                return None
        return None

    def _fetch(self, indices: list[int], layer: Layer, *, on_demand: bool) -> None:
        """Allocate maps and copy them back; the memory stream waits until the compute stream has reached the point."""
        phase = layer.backward_phases[0]
        for index in indices:
            self.plan.allocate(self._buffers.maps[index], layer.index, phase)
        ready = self.plan.record(Stream.COMPUTE)
        self.plan.wait(ready, Stream.MEMORY)
        for index in indices:
            self.plan.prefetch(self._buffers.maps[index], layer.index, on_demand=on_demand)
            self._away.remove(index)
