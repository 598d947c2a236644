"""The iteration of Kim et al. (2018): maps are copied beside the kernels, without synchronization of layers.

An offload starts with the last forward reader of its map (Fig. 2: Swap-out(n) beside FWD(n+1)). The memory is released
when a later request would not fit without it, oldest first, or else just before the prefetch: only then does the
compute stream wait for the copy. An allocator that waits for memory about to be freed, as TensorFlow's, does so; bytes
are counted as in the ideal pool, without fragmentation.

Each map is prefetched at its trigger (Fig. 6), a number of steps before the first backward that reads it; a step is the
backward of one layer that is not in place. A map without a trigger is prefetched right after its offload (Fig. 5): it
never leaves the GPU, and frees nothing.

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
    """Return how many steps precede the first backward that reads a map."""
    first_reader = max(feature_map.saved_for)
    return bisect_left(backward_steps(workload), -first_reader, key=neg)  # backward goes down


def asynchronous_schedule(workload: Workload, triggers: Mapping[int, int | None]) -> Schedule:
    """Return the schedule that offloads the maps in `triggers`; memory is a `vdnnsim.plans.schemes.Pool`.

    A trigger is the number of steps, 1 or more, by which a map is prefetched ahead of its first backward reader, at the
    earliest at the beginning of backward; None for no trigger.
    """
    offloads = offloads_by_layer(workload, triggers)
    fetches = _fetches_by_layer(workload, triggers)
    steps: list[ScheduleStep] = []
    prefetched: set[int] = set()
    for run in forward(workload):
        steps.append(run)
        for index in offloads[run.layer.index]:
            what = feature_maps(workload, index)
            steps.append(Offload(what, run.layer, beside=True))
            if triggers[index] is None:
                steps.append(Prefetch(what, run.layer, Phase.FORWARD, on_demand=False))
                prefetched.add(index)
    for layer in backward_layers(workload):
        for index in fetches[layer.index]:
            what, on_demand = feature_maps(workload, index), index in layer.saved_maps
            steps += [Wait(what), Prefetch(what, layer, layer.backward_phases[0], on_demand)]
            prefetched.add(index)
        for index in layer.saved_maps:
            if index in prefetched:
                steps.append(Wait(feature_maps(workload, index)))
                prefetched.remove(index)
        steps += backward_of(layer)
    return [*steps, *update(workload)]


def _fetches_by_layer(workload: Workload, triggers: Mapping[int, int | None]) -> list[list[int]]:
    """Return by layer the maps that are prefetched with its backward, in the order in which backward reads them."""
    fetches: list[list[int]] = [[] for _ in workload.graph.layers]
    steps = backward_steps(workload)
    for index in sorted(triggers, reverse=True):
        lead, feature_map = triggers[index], workload.graph.maps[index]
        if lead is not None and needed_in_backward(workload, feature_map):
            fetches[steps[max(0, steps_before_backward_use(workload, feature_map) - lead)]].append(index)
    return fetches
