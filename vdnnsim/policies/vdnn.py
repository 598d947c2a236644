"""`vdnn_all`, `vdnn_conv` and `vdnn_dyn`: the policies of vDNN (MICRO 2016, III-C).

`vdnn_all` offloads the X of every feature-extraction layer, `vdnn_conv` of the CONV layers alone. A map that several
layers read counts as a CONV layer's if any of them is one. The classifier's input stays, for vDNN leaves the
classification layers unchanged (IV-A); an in-place ACTV has no X of its own. The X of batch normalization and of
element-wise addition, which the paper does not have, are treated like any other; what backward does not read, as the X
of an addition alone, is released and not copied.

`vdnn_dyn` decides by profiling passes which maps to offload and which algorithms to use. The passes in the paper's
order, each one trial iteration; the first from the second on that succeeds is taken:

1. vdnn_all with memory-optimal algorithms, which needs the least GPU memory: the passes end if it fails there; where
   only host memory is short they continue, as the others need less of that;
2. the fastest algorithms without any offload, `none(p)`, still allocated layer by layer. `NoOffloadPass` decides when
   this pass succeeds;
3. the fastest algorithms with vdnn_conv, then
4. with vdnn_all;
5. greedy vdnn_conv, then
6. greedy vdnn_all: a layer whose fastest algorithm would overflow takes the next one that fits;
7. the configuration of pass 1.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import ClassVar, Final

from vdnnsim.cost.table import KernelChoice
from vdnnsim.dnn.layers import LayerKind, Stage
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import InputError
from vdnnsim.plans.chunks import in_chunks
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.training_plan import ProfilingPass, TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, ByRule, choose_kernels, downgraded_until_it_fits
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import DecidedBy, Policy, Setting, Trial
from vdnnsim.policies.iterations.layerwise import LAYERWISE, PrefetchSearch, layerwise_schedule
from vdnnsim.units import Dimension, parse_quantity


def maps_of_all(workload: Workload) -> frozenset[int]:
    """Indices of the maps that vdnn_all offloads: those that only feature-extraction layers read."""
    layers = workload.graph.layers
    return frozenset(
        each.index
        for each in workload.graph.maps
        if each.consumers and all(layers[consumer].stage is Stage.FEATURES for consumer in each.consumers)
    )


def maps_of_conv(workload: Workload) -> frozenset[int]:
    return frozenset(i for i in maps_of_all(workload) if workload.graph.map_kind(i) is LayerKind.CONV)


WHOLE: Final = "whole"


class _Static(ByRule, frozen=True, kw_only=True):
    """Offload a fixed set of maps.

    Attributes:
        chunk: the most that a copy moves, as `64 MiB`, whose memory is then released (`vdnnsim.plans.chunks`). Under
            `whole`, as in the paper, a copy moves a map.
    """

    prefetch_search: PrefetchSearch = PrefetchSearch.FIG10
    chunk: str = WHOLE

    def __post_init__(self) -> None:
        """Check the size of a chunk.

        Raises:
            ValueError: it is no size, or less than a byte; msgspec makes that the refusal of the option.
        """
        try:
            if self.chunk != WHOLE and parse_quantity(self.chunk, Dimension.BYTES) < 1:
                raise ValueError(f"chunk: found {self.chunk!r}, expected at least a byte, or {WHOLE}")
        except InputError as failure:
            raise ValueError(f"chunk: {failure}, or {WHOLE}") from None

    def maps(self, workload: Workload) -> frozenset[int]:
        raise NotImplementedError  # pragma: no cover

    def plan(self, setting: Setting) -> TrainingPlan:
        workload = setting.workload
        schedule = layerwise_schedule(workload, self.maps(workload), self.prefetch_search)
        plan = self.lowered(setting, schedule, LAYERWISE)
        return plan if self.chunk == WHOLE else in_chunks(plan, int(parse_quantity(self.chunk, Dimension.BYTES)))


class VdnnAll(_Static, frozen=True, kw_only=True):
    """Offload the X of every feature-extraction layer."""

    name: ClassVar[str] = "vdnn_all"
    summary: ClassVar[str] = "offloads the input maps of all feature-extraction layers (vDNN paper, III-C)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def maps(self, workload: Workload) -> frozenset[int]:
        """Maps that only feature-extraction layers read."""
        return maps_of_all(workload)


class VdnnConv(_Static, frozen=True, kw_only=True):
    """Offload the X of the CONV layers."""

    name: ClassVar[str] = "vdnn_conv"
    summary: ClassVar[str] = "offloads the input maps of the CONV layers (vDNN paper, III-C)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def maps(self, workload: Workload) -> frozenset[int]:
        """Maps that a CONV layer reads, among those of `vdnn_all`."""
        return maps_of_conv(workload)


class NoOffloadPass(Enum):
    """When the pass without any offload succeeds.

    `network_wide`: where base(p) fits, the trial being an iteration of it. Only so does the paper's VGG-16 (128), whose
    layer-wise iteration would fit into 12 GB, need offloading (V-A), while the averages that it reports for vDNN_dyn
    (49 % and 69 % less memory) are those of a layer-wise iteration. `layer_wise`: where that iteration itself fits.
    """

    NETWORK_WIDE = "network_wide"
    LAYER_WISE = "layer_wise"


class VdnnDyn(Policy, frozen=True, kw_only=True):
    """Profile, then offload as little as fits."""

    name: ClassVar[str] = "vdnn_dyn"
    summary: ClassVar[str] = "finds offloads and algorithms by profiling passes (vDNN paper, III-C)"

    prefetch_search: PrefetchSearch = PrefetchSearch.FIG10
    no_offload_pass: NoOffloadPass = NoOffloadPass.NETWORK_WIDE

    def plan(self, setting: Setting) -> TrainingPlan:
        """Run the passes until one is taken; a network that even all(m) cannot train gets the plan of all(m)."""
        return _Profiler(setting, self).decide()


class _Profiler:
    def __init__(self, setting: Setting, options: VdnnDyn) -> None:
        self._setting = setting
        self._options = options
        self._passes: list[ProfilingPass] = []

    def decide(self) -> TrainingPlan:
        workload, costs = self._setting.workload, self._setting.costs
        fastest = choose_kernels(workload, costs, Algorithms.PERFORMANCE_OPTIMAL)
        least = choose_kernels(workload, costs, Algorithms.MEMORY_OPTIMAL)
        conv, everything = maps_of_conv(workload), maps_of_all(workload)
        smallest = self._layerwise(least, everything, "all(m)")
        first = self._try(smallest, "all(m)")
        # all(m) needs the most host memory.
        if isinstance(first.outcome, DoesNotFit) and first.outcome.pool is Pool.DEVICE:
            return self._finished(smallest)
        resident = self._without_offload(fastest)
        if resident is not None:
            return self._finished(resident)
        attempts: tuple[tuple[str, Callable[[], TrainingPlan]], ...] = (
            ("conv(p)", lambda: self._layerwise(fastest, conv, "conv(p)")),
            ("all(p)", lambda: self._layerwise(fastest, everything, "all(p)")),
            ("greedy conv", lambda: self._greedy(fastest, conv, "greedy conv")),
            ("greedy all", lambda: self._greedy(fastest, everything, "greedy all")),
        )
        for name, build in attempts:
            if self._setting.deadline.is_over:
                break
            plan = build()
            if self._try(plan, name).fits:
                return self._finished(plan)
        self._try(smallest, "all(m)")
        return self._finished(smallest)

    def _without_offload(self, fastest: KernelChoice) -> TrainingPlan | None:
        """Return the plan without offload; None where its pass fails."""
        if self._options.no_offload_pass is NoOffloadPass.LAYER_WISE:
            resident = self._layerwise(fastest, frozenset(), "none(p)")
            return resident if self._try(resident, "none(p)").fits else None
        base = replace(Base().plan(self._setting), policy=self._options.label, algorithms="base(p)")
        return self._layerwise(fastest, frozenset(), "none(p)") if self._try(base, "base(p)").fits else None

    def _layerwise(self, kernels: KernelChoice, maps: frozenset[int], algorithms: str) -> TrainingPlan:
        workload, options = self._setting.workload, self._options
        schedule = layerwise_schedule(workload, maps, options.prefetch_search)
        return lower(schedule, workload, kernels, LAYERWISE, label=options.label, algorithms=algorithms)

    def _greedy(self, fastest: KernelChoice, maps: frozenset[int], algorithms: str) -> TrainingPlan:
        """Downgrade algorithms that overflow to the fastest one with a smaller workspace."""
        setting = self._setting
        return downgraded_until_it_fits(setting, fastest, lambda kernels: self._layerwise(kernels, maps, algorithms))

    def _try(self, plan: TrainingPlan, name: str) -> Trial:
        trial = self._setting.trials.run_trial(plan)
        self._passes.append(ProfilingPass(name, trial.fits, trial.cost_s))
        return trial

    def _finished(self, plan: TrainingPlan) -> TrainingPlan:
        return replace(plan, passes=tuple(self._passes))
