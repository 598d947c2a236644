"""`swap` and `staggered_swap`: offload of the outputs of every x-th CONV layer on several GPUs (Kim et al. 2018).

`swap` is what the paper calls the original: every GPU swaps the same layers at the same time, as vDNN does, with a
synchronization at each layer that copies and a prefetch during the backward just before the one that reads the map.
`staggered_swap` is the paper's proposal: the i-th GPU of a switch group swaps layers i mod x + j x (III-A, Fig. 3),
layers are not synchronized, and the trigger of each swap-in is found by trial iterations (III-C).

The paper leaves open which layers "need to swap" and when streams synchronize. Both are options here; x = 3 reproduces
the ratios of its Tables II and III. Layers are counted among CONV layers, whose outputs are its feature maps (II-A),
from 0 in the order of execution.

The triggers of the adaptive swap-in (III-C, Fig. 7):

1. Every map is prefetched just in time, one step of backward ahead. If that does not fit, nothing will; the largest
   batch for which it does is what `vdnnsim max-batch` finds.
2. The earliest triggers that do not overflow: one distance for all maps, doubled until memory overflows, then bisected,
   where the paper increments it.
3. The latest triggers that delay nothing: of the distances tried the shortest, then just in time for as many maps as
   possible, and for each of the rest a distance of its own, bisected. After `MOST_TRIALS` in all, the other maps keep
   the common distance, which delays nothing; ResNet-50 takes 113, with a third of its CONV outputs swapped.

Delay is relative to the fastest trial of the second step, which need not be the earliest: where a map's memory must be
taken from one still being offloaded, an early prefetch costs time. So the result is never slower than just in time by
more than the tolerance.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import ClassVar

from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.liveness import needed_in_backward
from vdnnsim.plans.schemes import Pool
from vdnnsim.plans.training_plan import ProfilingPass, TrainingPlan
from vdnnsim.policies.algorithms import ByRule
from vdnnsim.policies.interface import DecidedBy, Setting
from vdnnsim.policies.iterations.asynchronous import asynchronous_schedule, steps_before_backward_use
from vdnnsim.policies.iterations.layerwise import LAYERWISE, layerwise_schedule

Triggers = Mapping[int, int | None]
"""By feature map, the steps of backward before its first reader at which it is prefetched; None for no trigger."""

Planner = Callable[[Sequence[Triggers]], tuple[TrainingPlan, ...]]
"""Plans every GPU with its triggers."""

JUST_IN_TIME = 1
"""The trigger of vDNN: the step before the one that reads the map."""

DELAY_TOLERANCE = 1e-3
"""A longer iteration, as a fraction, that counts as no delay; the paper names no threshold."""

MOST_TRIALS = 256
"""Trials after which step 3 ends; a network of hundreds of layers would take thousands."""


class Synchronization(Enum):
    """Whether compute and memory stream are synchronized at the end of each layer that copies."""

    LAYER = "layer"
    NONE = "none"


class SwapIn(Enum):
    """When a map is prefetched: one step ahead, right after its offload (Fig. 5), or at a trigger found by trials."""

    JUST_IN_TIME = "just_in_time"
    UNTRIGGERED = "untriggered"
    ADAPTIVE = "adaptive"


LARGEST_INTERVAL = 1000
"""No network has more CONV layers."""


class Swap(ByRule, frozen=True, kw_only=True):
    """Swap every x-th CONV output.

    Attributes:
        interval: x, the distance between layers that swap.
        stagger: whether the GPUs of a switch group swap different layers.
    """

    name: ClassVar[str] = "swap"
    summary: ClassVar[str] = "swaps the same CONV outputs on all GPUs, as vDNN would (Kim et al. 2018, III-A)"

    interval: int = 3
    stagger: bool = False
    synchronization: Synchronization = Synchronization.LAYER
    swap_in: SwapIn = SwapIn.JUST_IN_TIME

    def __post_init__(self) -> None:
        if not 1 <= self.interval <= LARGEST_INTERVAL:
            message = f"interval: found {self.interval}, expected an integer from 1 to {LARGEST_INTERVAL}"
            raise ValueError(message)
        if self.synchronization is Synchronization.LAYER and self.swap_in is not SwapIn.JUST_IN_TIME:
            message = f"swap_in: found {self.swap_in.value!r}, which needs synchronization: none"
            raise ValueError(message)

    @property
    def decided_by(self) -> DecidedBy:
        """Trials decide triggers; without synchronization memory decides when offloaded maps are released."""
        if self.swap_in is SwapIn.ADAPTIVE:
            return DecidedBy.TRIALS
        return DecidedBy.COSTS if self.synchronization is Synchronization.LAYER else DecidedBy.MEMORY

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan the first GPU."""
        return self.plans(setting)[0]

    def plans(self, setting: Setting) -> tuple[TrainingPlan, ...]:
        maps = self.swapped(setting)
        if self.swap_in is SwapIn.ADAPTIVE:
            return find_triggers(setting, maps, lambda triggers: self.plans_with(setting, triggers))
        lead = None if self.swap_in is SwapIn.UNTRIGGERED else JUST_IN_TIME
        return self.plans_with(setting, [dict.fromkeys(its, lead) for its in maps])

    def swapped(self, setting: Setting) -> list[list[int]]:
        position = {gpu: place for group in setting.groups for place, gpu in enumerate(group)}
        offsets = [position[gpu] if self.stagger else 0 for gpu in range(setting.gpus)]
        return [swapped_maps(setting.workload, self.interval, offset) for offset in offsets]

    def plans_with(self, setting: Setting, triggers: Sequence[Triggers]) -> tuple[TrainingPlan, ...]:
        """Plan every GPU with its triggers; GPUs with equal ones share a plan."""
        made: dict[tuple[tuple[int, int | None], ...], TrainingPlan] = {}
        for its in triggers:
            key = tuple(its.items())
            if key in made:
                continue
            if self.synchronization is Synchronization.LAYER:
                made[key] = self.lowered(setting, layerwise_schedule(setting.workload, its), LAYERWISE)
            else:
                scheme = partial(Pool, limits=setting.limits)
                made[key] = self.lowered(setting, asynchronous_schedule(setting.workload, its), scheme)
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


def find_triggers(setting: Setting, maps: Sequence[Sequence[int]], planner: Planner) -> tuple[TrainingPlan, ...]:
    """Return the plans at the triggers found, or those of step 1 where these do not fit.

    Where two GPUs swap the same map, its trigger is the same on both.
    """
    return _TriggerSearch(setting, maps, planner).decide()


class _TriggerSearch:
    def __init__(self, setting: Setting, maps: Sequence[Sequence[int]], planner: Planner) -> None:
        self._setting = setting
        self._planner = planner
        self._maps = maps
        self._feature_maps = setting.workload.graph.maps
        self._farthest = {
            index: steps_before_backward_use(setting.workload, self._feature_maps[index])
            for index in dict.fromkeys(index for its in maps for index in its)
        }
        self._triggers = self._common(JUST_IN_TIME)
        self._fastest_s = 0.0
        self._passes: list[ProfilingPass] = []

    def decide(self) -> tuple[TrainingPlan, ...]:
        just_in_time_s = self._try(self._triggers, "step 1: just in time")
        if just_in_time_s is not None:
            leads_s = {JUST_IN_TIME: just_in_time_s, **self._earlier()}
            self._fastest_s = min(leads_s.values())
            lead = min(lead for lead, seconds in leads_s.items() if not self._delays(seconds))
            self._triggers = self._common(lead)
            if lead > JUST_IN_TIME:
                self._later(list(self._farthest), lead)
        plans = self._planner(self._for_each_gpu(self._triggers))
        return tuple(replace(plan, passes=tuple(self._passes)) for plan in plans)

    def _earlier(self) -> dict[int, float]:
        """Step 2: return the seconds of an iteration at every common distance that fits."""
        farthest = max(self._farthest.values(), default=JUST_IN_TIME)
        leads_s: dict[int, float] = {}
        fits, overflows = JUST_IN_TIME, farthest + 1
        while overflows - fits > 1 and not self._setting.deadline.is_over:
            lead = (fits + overflows) // 2 if overflows <= farthest else min(2 * fits, farthest)
            seconds = self._try(self._common(lead), f"step 2: {lead} steps ahead")
            if seconds is None:
                overflows = lead
            else:
                fits, leads_s[lead] = lead, seconds
        return leads_s

    def _later(self, maps: list[int], lead: int) -> None:
        """Step 3, for maps prefetched `lead` steps ahead, which would delay if all were just in time."""
        if len(maps) == 1:
            self._latest(maps[0], lead)
            return
        for half in (maps[: len(maps) // 2], maps[len(maps) // 2 :]):
            which = self._feature_maps[half[0]].name if len(half) == 1 else f"{len(half)} maps"
            if not self._accepts(half, JUST_IN_TIME, f"step 3: {which} just in time"):
                self._later(half, lead)

    def _latest(self, index: int, lead: int) -> None:
        """Bisect between a trigger that delays nothing and just in time, which does."""
        delays = JUST_IN_TIME
        while lead - delays > 1 and not self._setting.deadline.is_over:
            middle = (lead + delays) // 2
            if self._accepts([index], middle, f"step 3: {self._feature_maps[index].name} {middle} steps ahead"):
                lead = middle
            else:
                delays = middle

    def _accepts(self, maps: list[int], lead: int, name: str) -> bool:
        """Try other triggers for some maps while trials and time last; keep them if they fit and delay nothing."""
        if len(self._passes) >= MOST_TRIALS or self._setting.deadline.is_over:
            return False
        triggers = {**self._triggers, **dict.fromkeys(maps, lead)}
        seconds = self._try(triggers, name)
        if seconds is None or self._delays(seconds):
            return False
        self._triggers = triggers
        return True

    def _delays(self, seconds: float) -> bool:
        return seconds > self._fastest_s * (1 + DELAY_TOLERANCE)

    def _common(self, lead: int) -> dict[int, int]:
        return dict.fromkeys(self._farthest, lead)

    def _for_each_gpu(self, triggers: Mapping[int, int]) -> list[Triggers]:
        return [{index: triggers[index] for index in its} for its in self._maps]

    def _try(self, triggers: Mapping[int, int], name: str) -> float | None:
        """Return the seconds of a trial iteration, until the last GPU is done; None where it does not fit."""
        trials = self._setting.run_on_all_gpus(self._planner(self._for_each_gpu(triggers)))
        fits, cost_s = all(trial.fits for trial in trials), max(trial.cost_s for trial in trials)
        self._passes.append(ProfilingPass(name, fits, cost_s))
        return cost_s if fits else None
