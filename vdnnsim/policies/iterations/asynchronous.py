"""The iteration of Kim et al. (2018): maps leave and come back beside the kernels, with no synchronization of layers.

An offload starts with the last forward reader of its map (Fig. 2: Swap-out(n) beside FWD(n+1)). The memory is given
back when a later request would not fit without it, oldest first, or else just before the map comes back: only then does
the compute stream wait for the copy. That is what an allocator does which waits for memory that is about to be freed,
as TensorFlow's; it counts bytes, as the ideal pool does, and knows of no gaps.

Each map comes back at its trigger (Fig. 6), a number of steps before the first backward that reads it; a step is the
backward of one layer that is not in place. A map without a trigger depends on nothing but its own offload and follows
it at once (Fig. 5): it never leaves the GPU, and frees nothing.

Source: Kim, Lee, Kim, Je, Roh, "Efficient Multi-GPU Memory Management for Deep Learning Acceleration", 2018, III-B and
III-C. How TensorFlow frees memory under a copy is not in the paper; the rule above is an assumption.
"""

from bisect import bisect_left
from collections.abc import Mapping
from operator import neg

from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.liveness import needed_in_backward
from vdnnsim.plans.schedule import (
    Offload,
    Prefetch,
    Schedule,
    ScheduleStep,
    Wait,
    backward_layers,
    backward_of,
    feature_maps,
    forward,
    update,
)
from vdnnsim.policies.iterations.layerwise import offloads_by_layer


def backward_steps(workload: Workload) -> tuple[int, ...]:
    """Return the layers whose backward is a step, in the order of backward."""
    return tuple(
        layer.index for layer in reversed(workload.graph.layers) if layer.backward_phases and not layer.in_place
    )


def steps_before_backward_use(workload: Workload, feature_map: FeatureMap) -> int:
    """Return how many steps precede the first backward that reads a map, which may be that of an in-place layer."""
    first_reader = max(feature_map.saved_for)
    return bisect_left(backward_steps(workload), -first_reader, key=neg)  # backward goes down


def asynchronous_schedule(workload: Workload, triggers: Mapping[int, int | None]) -> Schedule:
    """Return the schedule that offloads the maps in `triggers`; memory is a `vdnnsim.plans.schemes.Pool`.

    A trigger says how many steps before its first backward reader a map comes back, 1 or more; None for no trigger. One
    that would lie before backward lies at its beginning.
    """
    offloads = offloads_by_layer(workload, triggers)
    fetches = _fetches_by_layer(workload, triggers)
    steps: list[ScheduleStep] = []
    coming: set[int] = set()
    for run in forward(workload):
        steps.append(run)
        for index in offloads[run.layer.index]:
            what = feature_maps(workload, index)
            steps.append(Offload(what, run.layer, beside=True))
            if triggers[index] is None:
                steps.append(Prefetch(what, run.layer, Phase.FORWARD, on_demand=False))
                coming.add(index)
    for layer in backward_layers(workload):
        for index in fetches[layer.index]:
            what, on_demand = feature_maps(workload, index), index in layer.saved_maps
            steps += [Wait(what), Prefetch(what, layer, layer.backward_phases[0], on_demand)]
            coming.add(index)
        for index in layer.saved_maps:
            if index in coming:
                steps.append(Wait(feature_maps(workload, index)))
                coming.remove(index)
        steps += backward_of(layer)
    return [*steps, *update(workload)]


def _fetches_by_layer(workload: Workload, triggers: Mapping[int, int | None]) -> list[list[int]]:
    """Return by layer the maps that come back with its backward.

    The later a map was made the sooner backward reads it: of those that come back together the first.
    """
    fetches: list[list[int]] = [[] for _ in workload.graph.layers]
    steps = backward_steps(workload)
    for index in sorted(triggers, reverse=True):
        lead, feature_map = triggers[index], workload.graph.maps[index]
        if lead is not None and needed_in_backward(workload, feature_map):
            fetches[steps[max(0, steps_before_backward_use(workload, feature_map) - lead)]].append(index)
    return fetches
