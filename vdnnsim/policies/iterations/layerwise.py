"""The layer-wise iteration of vDNN (MICRO 2016, III): offload in forward, prefetch in backward, release at once.

Forward of a layer allocates its Y and workspace. If the layer is the last consumer of an X that is to be offloaded,
the copy starts with the layer's kernel on the memory stream; at the end of the layer both streams are synchronized
and X is released (III-B). Backward of a layer first searches for one layer whose X to prefetch meanwhile (Fig. 10),
and synchronizes at its end if it found one. Other maps are fetched on demand. Each map and gradient map is
released after its last reader.
"""

from collections.abc import Collection, Sequence
from enum import Enum
from functools import partial
from typing import Final

from vdnnsim.dnn.layers import Layer, LayerKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.liveness import last_forward_use, needed_in_backward
from vdnnsim.plans.schedule import (
    Offload,
    Prefetch,
    Schedule,
    ScheduleStep,
    Synchronize,
    backward_layers,
    backward_of,
    feature_maps,
    forward,
    update,
)
from vdnnsim.plans.schemes import ByLifetime


class PrefetchSearch(Enum):
    """Which layers' backward launches a prefetch.

    `fig10` is the search as printed: CONV, POOL and FC do. `fig10_without_pool` leaves POOL out, the reading under
    which VGG-16 (128) under all(m) needs the 4.8 GB that the paper reports (V-A); what only POOL would prefetch is then
    fetched on demand. Layers that the paper does not have launch nothing: the loss, a concatenation, batch
    normalization, element-wise addition, and an in-place ACTV, which is part of the layer before it. So of a CONV and
    a BN layer whose X are both offloaded one search finds only one map, and the other is fetched on demand.
    """

    FIG10 = "fig10"
    FIG10_WITHOUT_POOL = "fig10_without_pool"


_LAUNCHERS = {
    PrefetchSearch.FIG10: (LayerKind.CONV, LayerKind.POOL, LayerKind.FC),
    PrefetchSearch.FIG10_WITHOUT_POOL: (LayerKind.CONV, LayerKind.FC),
}


LAYERWISE: Final = partial(ByLifetime, holds_statistics=True)
"""The scheme of allocation that goes with it."""


def offloads_by_layer(workload: Workload, offloaded: Collection[int]) -> list[list[int]]:
    """Return by layer the maps offloaded with its forward: those given that backward needs and that it reads last."""
    offloads: list[list[int]] = [[] for _ in workload.graph.layers]
    for each in workload.graph.maps:
        if each.index in offloaded and needed_in_backward(workload, each):
            offloads[last_forward_use(each)].append(each.index)
    return offloads


def layerwise_schedule(
    workload: Workload, offloaded: Collection[int], search: PrefetchSearch = PrefetchSearch.FIG10
) -> Schedule:
    """Return the schedule that offloads the given feature maps that backward needs."""
    offloads = offloads_by_layer(workload, offloaded)
    away = {index for leaving in offloads for index in leaving}
    steps: list[ScheduleStep] = []
    for run in forward(workload):
        steps.append(run)
        if leaving := offloads[run.layer.index]:
            steps += [Offload(feature_maps(workload, *leaving), run.layer, beside=True), Synchronize()]
    for layer in backward_layers(workload):
        phase = layer.backward_phases[0]
        if missing := [index for index in layer.saved_maps if index in away]:
            steps += [Prefetch(feature_maps(workload, *missing), layer, phase, on_demand=True), Synchronize()]
            away.difference_update(missing)
        found = _maps_to_prefetch(workload, offloads, away, layer) if layer.kind in _LAUNCHERS[search] else []
        if found:
            steps.append(Prefetch(feature_maps(workload, *found), layer, phase, on_demand=False))
            away.difference_update(found)
        steps += backward_of(layer)
        if found:
            steps.append(Synchronize())
    return [*steps, *update(workload)]


def _maps_to_prefetch(
    workload: Workload, offloads: Sequence[Sequence[int]], away: Collection[int], layer: Layer
) -> list[int]:
    """Fig. 10: the offloaded maps of the closest layer below that has any, unless a CONV layer comes first."""
    for below in reversed(workload.graph.layers[: layer.index]):
        found = [index for index in offloads[below.index] if index in away]
        if found or below.kind is LayerKind.CONV:
            return found
    return []
