"""`swap` and `staggered_swap`: feature maps of every few CONV layers leave, on several GPUs (Kim et al. 2018).

Both swap the outputs of every x-th CONV layer. `swap` is what the paper calls the original: every GPU swaps the same
layers at the same time, as vDNN does, with a synchronization at each layer that copies, and a map comes back during the
backward just before the one that reads it. `staggered_swap` is the paper's proposal (III-A, III-C): the i-th GPU of a
switch group swaps layers i mod x + j x, nothing synchronizes layers, and the trigger of each swap-in is found by trial
iterations (Fig. 7): the earliest that does not overflow, then the latest that does not delay.

The paper leaves open which layers "need to swap" and when streams synchronize. Both are options here; x = 3 is the
reading under which the ratios of its Tables II and III come out.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import ClassVar

from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.liveness import needed_in_backward
from vdnnsim.plan.training_plan import ProfilingPass, TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.asynchronous import asynchronous_plan, backward_steps
from vdnnsim.policies.layerwise import PrefetchSearch, layerwise_plan
from vdnnsim.policies.port import Policy, Setting

Triggers = dict[int, int | None]
"""By feature map, its trigger: steps of backward before the first that reads it; None for none."""


class Synchronization(Enum):
    """Whether compute and memory stream meet at the end of each layer that copies."""

    LAYER = "layer"
    NONE = "none"


class SwapIn(Enum):
    """When a map comes back: one step ahead, right behind its offload (Fig. 5), or at a trigger found by trials."""

    JUST_IN_TIME = "just_in_time"
    UNTRIGGERED = "untriggered"
    ADAPTIVE = "adaptive"


DELAY_TOLERANCE = 1e-3
"""A trigger delays nothing if the iteration is at most this fraction longer; the paper names no threshold."""


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
        if not 1 <= self.interval <= 1000:
            message = f"interval: found {self.interval}, expected an integer from 1 to 1000"
            raise ValueError(message)
        if self.synchronization is Synchronization.LAYER and self.swap_in is not SwapIn.JUST_IN_TIME:
            message = f"swap_in: {self.swap_in.value} needs synchronization: none"
            raise ValueError(message)

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan the first GPU."""
        return self.plans(setting)[0]

    def plans(self, setting: Setting) -> tuple[TrainingPlan, ...]:
        """Plan every GPU of the server."""
        if self.swap_in is SwapIn.ADAPTIVE:
            return _TriggerSearch(self, setting).decide()
        lead = None if self.swap_in is SwapIn.UNTRIGGERED else 1
        triggers: list[Triggers] = [dict.fromkeys(maps, lead) for maps in self.swapped(setting)]
        return self.plans_with(setting, triggers)

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


class _TriggerSearch:
    """The three steps of III-C, with one distance for all triggers in the second and one for each in the third."""

    def __init__(self, policy: Swap, setting: Setting) -> None:
        self._policy = policy
        self._setting = setting
        self._maps = policy.swapped(setting)
        self._passes: list[ProfilingPass] = []

    def decide(self) -> tuple[TrainingPlan, ...]:
        """Return the plans at the triggers found; those of step 1 where even they do not fit."""
        triggers = self._common(1)
        best = self._try(triggers, "step 1: just in time")
        if best is None:
            return self._finished(triggers)
        farthest = len(backward_steps(self._setting.workload))
        lead = 1
        while lead < farthest:
            earlier_s = self._try(self._common(lead + 1), f"step 2: {lead + 1} steps ahead")
            if earlier_s is None:
                break
            lead, best = lead + 1, earlier_s
        triggers = self._common(lead)
        for index in dict.fromkeys(index for maps in self._maps for index in maps):
            triggers = self._latest(triggers, index, lead, best)
        return self._finished(triggers)

    def _latest(self, triggers: list[Triggers], index: int, lead: int, best_s: float) -> list[Triggers]:
        """Return the triggers with that of one map as late as it delays nothing, found by bisection."""
        too_late = 0
        while lead - too_late > 1:
            middle = (lead + too_late) // 2
            later = [{each: middle if each == index else its[each] for each in its} for its in triggers]
            later_s = self._try(later, f"step 3: map {index} {middle} steps ahead")
            if later_s is None or later_s > best_s * (1 + DELAY_TOLERANCE):
                too_late = middle
            else:
                lead, triggers = middle, later
        return triggers

    def _common(self, lead: int) -> list[Triggers]:
        return [dict.fromkeys(maps, lead) for maps in self._maps]

    def _try(self, triggers: list[Triggers], name: str) -> float | None:
        """Return the seconds of a trial iteration, until the last GPU is done; None where it does not fit."""
        trials = self._setting.run_together(self._policy.plans_with(self._setting, triggers))
        fits, cost_s = all(trial.fits for trial in trials), max(trial.cost_s for trial in trials)
        self._passes.append(ProfilingPass(name, fits, cost_s))
        return cost_s if fits else None

    def _finished(self, triggers: list[Triggers]) -> tuple[TrainingPlan, ...]:
        plans = self._policy.plans_with(self._setting, triggers)
        return tuple(replace(plan, passes=tuple(self._passes)) for plan in plans)
