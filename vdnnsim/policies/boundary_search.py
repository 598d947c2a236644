"""`boundary_search`: offload the first layers, use one algorithm for all, and search the boundary of what fits.

Two numbers describe a configuration: up to which layer, from the input on, maps are offloaded, as those have the
longest reuse distance; and the one convolution algorithm of all layers. The best configuration lies on the boundary
beyond which nothing fits. Source: Zhu, How to Train a Very Large and Deep Model on One GPU? (2016), a blog post about
vDNN, "Configure the time-space trade-off".

Assumptions:

- Algorithms are those that the cost table offers for convolutions, the fastest in sum first. A kernel without the
  algorithm uses the one with the least workspace.
- For each algorithm the fewest offloaded maps that fit are found by bisection, without a replay; one trial iteration
  then times it. An algorithm whose kernels alone take as long as the best trial so far is not tried.
- A deadline ends the search with the fastest plan that was tried.
- Maps are those of `vdnn_all`, in the order in which they are written; the iteration is vDNN's.
"""

from dataclasses import replace
from math import inf
from typing import ClassVar

from vdnnsim.cost.table import ONLY, CostTable, KernelChoice, KernelCost
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.liveness import needed_in_backward
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.plans.training_plan import ProfilingPass, TrainingPlan
from vdnnsim.policies.interface import Policy, Setting
from vdnnsim.policies.iterations.layerwise import LAYERWISE, PrefetchSearch, layerwise_schedule
from vdnnsim.policies.vdnn import maps_of_all


class BoundarySearch(Policy, frozen=True, kw_only=True):
    """Try one configuration for each algorithm."""

    name: ClassVar[str] = "boundary_search"
    summary: ClassVar[str] = (
        "offloads the first layers, one algorithm for all, along the edge of what fits (blog on vDNN)"
    )

    prefetch_search: PrefetchSearch = PrefetchSearch.FIG10

    def plan(self, setting: Setting) -> TrainingPlan:
        """Return the fastest plan on the boundary; where nothing fits, the one that needs least memory."""
        return _Search(setting, self).decide()


def one_algorithm(workload: Workload, costs: CostTable, algorithm: str) -> KernelChoice:
    """Return the kernels with one algorithm wherever it is available."""
    chosen: dict[tuple[int, Phase], KernelCost] = {}
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            offered = (each for each in costs.options(layer.index, phase) if each.algorithm == algorithm)
            chosen[layer.index, phase] = next(offered, costs.memory_optimal(layer.index, phase))
    return chosen


class _Search:
    def __init__(self, setting: Setting, options: BoundarySearch) -> None:
        self._setting = setting
        self._options = options
        workload, costs = setting.workload, setting.costs
        maps = workload.graph.maps
        self._maps = [index for index in sorted(maps_of_all(workload)) if needed_in_backward(workload, maps[index])]
        names = dict.fromkeys(
            each.algorithm
            for layer in workload.graph.layers
            if layer.kind is LayerKind.CONV
            for phase in workload.phases(layer)
            for each in costs.options(layer.index, phase)
        )
        kernels = {name: one_algorithm(workload, costs, name) for name in names or [ONLY]}
        self._ladder = dict(sorted(kernels.items(), key=lambda item: sum(each.seconds for each in item[1].values())))

    def decide(self) -> TrainingPlan:
        passes: list[ProfilingPass] = []
        best, best_s = None, inf
        for algorithm, kernels in self._ladder.items():
            # No iteration is shorter than its kernels.
            if sum(each.seconds for each in kernels.values()) >= best_s:
                continue
            if self._setting.deadline.is_over:
                break
            plan = self._edge(algorithm)
            if plan is None:
                continue
            trial = self._setting.trials.run_trial(plan)
            passes.append(ProfilingPass(plan.algorithms, trial.fits, trial.cost_s))
            if trial.fits and trial.cost_s < best_s:
                best, best_s = plan, trial.cost_s
        return replace(best or self._smallest(), passes=tuple(passes))

    def _edge(self, algorithm: str) -> TrainingPlan | None:
        """Return the plan that fits with the fewest offloaded maps; None where none does."""
        if (resident := self._fitting(algorithm, 0)) is not None:
            return resident
        fits, too_few = len(self._maps), 0
        edge = self._fitting(algorithm, fits)
        while edge is not None and fits - too_few > 1 and not self._setting.deadline.is_over:
            middle = (fits + too_few) // 2
            plan = self._fitting(algorithm, middle)
            if plan is None:
                too_few = middle
            else:
                fits, edge = middle, plan
        return edge

    def _fitting(self, algorithm: str, count: int) -> TrainingPlan | None:
        plan = self._plan(algorithm, count)
        return plan if isinstance(place_plan(plan, self._setting.limits), Placement) else None

    def _smallest(self) -> TrainingPlan:
        """Return the plan with everything offloaded and the algorithm of the smallest largest workspace."""
        algorithm = min(
            self._ladder, key=lambda name: max(each.workspace_bytes for each in self._ladder[name].values())
        )
        return self._plan(algorithm, len(self._maps))

    def _plan(self, algorithm: str, count: int) -> TrainingPlan:
        workload, label = self._setting.workload, self._options.label
        schedule = layerwise_schedule(workload, self._maps[:count], self._options.prefetch_search)
        algorithms = f"{algorithm}, first {count} of {len(self._maps)}"
        return lower(schedule, workload, self._ladder[algorithm], LAYERWISE, label=label, algorithms=algorithms)
