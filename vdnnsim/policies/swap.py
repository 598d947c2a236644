"""`swap` and `staggered_swap`: feature maps of every few CONV layers leave, on several GPUs (Kim et al. 2018).

Both swap the outputs of every x-th CONV layer. `swap` is what the paper calls the original: every GPU swaps the same
layers at the same time, as vDNN does, with a synchronization at each layer that copies, and a map comes back during the
backward just before the one that reads it. `staggered_swap` is the paper's proposal: the i-th GPU of a switch group
swaps layers i mod x + j x (III-A, Fig. 3), nothing synchronizes layers, and the trigger of each swap-in is found by
trial iterations (III-C, `vdnnsim.policies.triggers`).

The paper leaves open which layers "need to swap" and when streams synchronize. Both are options here; x = 3 is the
reading under which the ratios of its Tables II and III come out. The layers that are counted are the CONV layers, whose
outputs are its feature maps (II-A), from 0 in the order of execution.
"""

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.liveness import needed_in_backward
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.asynchronous import asynchronous_plan
from vdnnsim.policies.layerwise import PrefetchSearch, layerwise_plan
from vdnnsim.policies.port import DecidedBy, Policy, Setting
from vdnnsim.policies.triggers import JUST_IN_TIME, Triggers, find_triggers


class Synchronization(Enum):
    """Whether compute and memory stream meet at the end of each layer that copies."""

    LAYER = "layer"
    NONE = "none"


class SwapIn(Enum):
    """When a map comes back: one step ahead, right behind its offload (Fig. 5), or at a trigger found by trials."""

    JUST_IN_TIME = "just_in_time"
    UNTRIGGERED = "untriggered"
    ADAPTIVE = "adaptive"


LARGEST_INTERVAL = 1000
"""No network has more CONV layers."""


class Swap(Policy, frozen=True, kw_only=True):
    """Swap every x-th CONV output.

    Attributes:
        interval: x, the distance between layers that swap.
        stagger: whether the GPUs of a switch group swap different layers.
    """

    name: ClassVar[str] = "swap"
    summary: ClassVar[str] = "swaps the same CONV outputs on all GPUs, as vDNN would (Kim et al. 2018, III-A)"

    algorithms: Algorithms = Algorithms.PERFORMANCE_OPTIMAL
    interval: int = 3
    stagger: bool = False
    synchronization: Synchronization = Synchronization.LAYER
    swap_in: SwapIn = SwapIn.JUST_IN_TIME

    def __post_init__(self) -> None:
        """Refuse options that mean nothing together."""
        if not 1 <= self.interval <= LARGEST_INTERVAL:
            message = f"interval: found {self.interval}, expected an integer from 1 to {LARGEST_INTERVAL}"
            raise ValueError(message)
        if self.synchronization is Synchronization.LAYER and self.swap_in is not SwapIn.JUST_IN_TIME:
            message = f"swap_in: found {self.swap_in.value!r}, which needs synchronization: none"
            raise ValueError(message)

    @property
    def decided_by(self) -> DecidedBy:
        """Triggers are found by trials; without synchronization, maps under way take what memory there is."""
        if self.swap_in is SwapIn.ADAPTIVE:
            return DecidedBy.TRIALS
        return DecidedBy.COSTS if self.synchronization is Synchronization.LAYER else DecidedBy.MEMORY

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan the first GPU."""
        return self.plans(setting)[0]

    def plans(self, setting: Setting) -> tuple[TrainingPlan, ...]:
        """Plan every GPU of the server."""
        maps = self.swapped(setting)
        if self.swap_in is SwapIn.ADAPTIVE:
            return find_triggers(setting, maps, lambda triggers: self.plans_with(setting, triggers))
        lead = None if self.swap_in is SwapIn.UNTRIGGERED else JUST_IN_TIME
        return self.plans_with(setting, [dict.fromkeys(its, lead) for its in maps])

    def swapped(self, setting: Setting) -> list[list[int]]:
        """Return the maps that each GPU swaps."""
        position = {gpu: place for group in setting.groups for place, gpu in enumerate(group)}
        offsets = [position[gpu] if self.stagger else 0 for gpu in range(setting.gpus)]
        return [swapped_maps(setting.workload, self.interval, offset) for offset in offsets]

    def plans_with(self, setting: Setting, triggers: Sequence[Triggers]) -> tuple[TrainingPlan, ...]:
        """Plan every GPU with its triggers; GPUs with equal ones share a plan."""
        workload, label, algorithms = setting.workload, self.label, self.algorithms.value
        kernels = choose_kernels(workload, setting.costs, self.algorithms)
        made: dict[tuple[tuple[int, int | None], ...], TrainingPlan] = {}
        for its in triggers:
            key = tuple(its.items())
            if key in made:
                continue
            if self.synchronization is Synchronization.LAYER:
                search = PrefetchSearch.FIG10
                plan = layerwise_plan(workload, kernels, frozenset(its), search, label=label, algorithms=algorithms)
            else:
                plan = asynchronous_plan(workload, kernels, its, setting.limits, label=label, algorithms=algorithms)
            made[key] = plan
        return tuple(made[tuple(its.items())] for its in triggers)


class StaggeredSwap(Swap, frozen=True, kw_only=True):
    """Swap every x-th CONV output, at another one on each GPU of a switch group."""

    name: ClassVar[str] = "staggered_swap"
    summary: ClassVar[str] = "swaps other CONV outputs on each GPU of a switch, at adaptive triggers (Kim et al. 2018)"

    stagger: bool = True
    synchronization: Synchronization = Synchronization.NONE
    swap_in: SwapIn = SwapIn.ADAPTIVE


def swapped_maps(workload: Workload, interval: int, offset: int) -> list[int]:
    """Return the outputs of CONV layers offset mod interval, and every interval-th after it, that backward needs."""
    convolutions = [layer for layer in workload.graph.layers if layer.kind is LayerKind.CONV]
    maps = [workload.graph.maps[layer.output] for layer in convolutions[offset % interval :: interval]]
    return [each.index for each in maps if needed_in_backward(workload, each)]
