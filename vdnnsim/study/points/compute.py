"""Points computed one after the other, with cost models, plans, placements and replays shared where they are equal.

A cost table depends on workload and kernels; a plan on costs and policy, on memory and trials only if the policy
declares so; a replay on plan and copies, without copies on neither link nor pinning. So one of the points that differ
in memory alone is replayed, and those that differ in the link alone share everything but their replays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias

from vdnnsim.analysis.columns import Measured, Value, cells
from vdnnsim.analysis.metrics import RunMetrics, measure, performance_ratios
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import AdjustedCosts, CostModel
from vdnnsim.errors import StudyError, VdnnsimError, is_fault
from vdnnsim.files.messages import describe_exception
from vdnnsim.plans.operations import Offload, Prefetch
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import DecidedBy, Policy
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator, once
from vdnnsim.study.points.resolve import Kept, Resolved

OUTCOME: Final = (
    *("algorithms", "fits", "iteration_s", "samples_per_s", "allocated_bytes", "mean_allocated_bytes"),
    *("feature_allocated_bytes", "feature_step_mean_allocated_bytes", "feature_iteration_s", "offloaded_bytes"),
    *("prefetched_bytes", "host_memory_bytes", "stall_s", "performance_ratio", "feature_performance_ratio"),
    *("reserved_bytes", "server_samples_per_s", "refusal"),
)

Outcome: TypeAlias = tuple[Value | None, ...]
"""An error, empty if there is none, and the cells of `OUTCOME`, all None if there is one."""


def failed(error: str) -> Outcome:
    return (error, *(None for _ in OUTCOME))


def computed(metrics: RunMetrics, oracle: RunMetrics, algorithms: str, refusal: str, gpus: int) -> Outcome:
    """Return the outcome of a point, of several GPUs of the slowest; it fits if the refusal is empty."""
    ratios = performance_ratios(oracle, metrics)
    measured = Measured(algorithms, refusal, metrics, *ratios, server_samples_per_s=gpus * metrics.samples_per_s)
    return ("", *cells(OUTCOME, {}, measured))


_MODELS = 4
_PLANS = 24
_PLACEMENTS = 100
_REPLAYS = 2048


@dataclass(frozen=True, slots=True)
class _Plans:
    """The checked plans of all GPUs; `number` is unique, `copies` says whether they use a link."""

    number: int
    plans: tuple[TrainingPlan, ...]
    copies: bool


class PointRunner:
    """Computes points, and keeps the last of the results that they share."""

    def __init__(self, watch: Callable[[Simulator, Sequence[TrainingPlan], RunMetrics], None] | None = None) -> None:
        """Compute points, of each of which `watch` gets the simulator, its plans and the metrics of the slowest."""
        self._watch = watch
        self._models: Kept[CostModel] = Kept(_MODELS)
        self._plans: Kept[_Plans] = Kept(_PLANS)
        self._placements: Kept[tuple[Placement | DoesNotFit, ...]] = Kept(_PLACEMENTS)
        self._replays: Kept[RunMetrics] = Kept(_REPLAYS)
        self._numbers = count()

    def run(self, point: Resolved) -> Outcome:
        """Return the outcome of a point, which may be an error.

        Raises:
            StudyError: input, output or memory failed; the point may be computed later.
        """
        if point.scenario is None:
            if point.is_fault:
                raise StudyError(point.error)
            return failed(point.error)
        try:
            return self._run(point, point.scenario)
        except Exception as failure:  # a bug at one point, or in a user's policy, does not end the study
            message = str(failure) if isinstance(failure, VdnnsimError) else describe_exception(failure)
            if is_fault(failure):
                raise StudyError(message) from failure
            return failed(message)

    def _run(self, point: Resolved, scenario: Scenario) -> Outcome:
        costs = self._models.get(point.costs_key, lambda: _cost_model(scenario, point.compute_speed))
        simulator = simulator_of(scenario, costs)
        (policy,) = scenario.policies
        plans = self._planned(point, simulator, policy)
        limits = simulator.limits
        placements = self._placements.get((plans.number, limits), lambda: once(simulator.place, plans.plans))
        refusal = next((each for each in placements if isinstance(each, DoesNotFit)), None)
        if refusal is not None:
            unlimited = (plans.number, limits.model, limits.granule_bytes)
            fitting = self._placements.get(unlimited, lambda: once(simulator.place_unlimited, plans.plans))
        else:
            fitting = placements
        metrics = self._replayed(point, simulator, plans, fitting)
        if self._watch is not None:
            self._watch(simulator, plans.plans, metrics)
        oracle = self._oracle(point, simulator)
        explained = "" if refusal is None else refusal.explain()
        return computed(metrics, oracle, plans.plans[0].algorithms, explained, scenario.batches)

    def _planned(self, point: Resolved, simulator: Simulator, policy: Policy) -> _Plans:
        """Return the plans of a policy, shared with points that decide the same."""
        if policy.decided_by is DecidedBy.TRIALS:
            return self._make_plans(simulator, policy)
        setting = simulator.setting().of(policy.decided_by)
        known = (setting.known_limits, setting.gpus, setting.groups, simulator.gradients)
        key = (point.costs_key, type(policy), policy, *known)
        return self._plans.get(key, lambda: self._make_plans(simulator, policy))

    def _make_plans(self, simulator: Simulator, policy: Policy) -> _Plans:
        plans = simulator.ready(simulator.plans(policy, simulator.setting()), policy.label)
        copies = _exchanges(simulator) or any(isinstance(each, Offload | Prefetch) for each in plans[0].operations)
        return _Plans(next(self._numbers), plans, copies)

    def _oracle(self, point: Resolved, simulator: Simulator) -> RunMetrics:
        """Return the metrics of base(p) in unlimited memory; a GPU alone copies nothing."""
        timed_by = point.copies_key if _exchanges(simulator) else simulator.server.host.issuing
        key = ("oracle", point.costs_key, timed_by, simulator.gpus, simulator.gradients, simulator.limits.granule_bytes)
        return self._replays.get((*key, simulator.limits.model), simulator.oracle)

    def _replayed(
        self, point: Resolved, simulator: Simulator, plans: _Plans, placements: Sequence[Placement | DoesNotFit]
    ) -> RunMetrics:
        pools = tuple((each.pool_bytes, each.host_bytes) for each in placements if isinstance(each, Placement))
        timed_by = point.copies_key if plans.copies else simulator.server.host.issuing
        key = (plans.number, timed_by, pools, simulator.limits.model, simulator.limits.granule_bytes)

        def replay() -> RunMetrics:
            together = simulator.replay(plans.plans, placements)
            slowest = max(together.gpus, key=lambda trace: trace.iteration_s)
            return measure(slowest, simulator.workload.batch_size, simulator.pipeline_s(together))

        return self._replays.get(key, replay)


def _exchanges(simulator: Simulator) -> bool:
    """Return whether GPUs or ranks exchange anything over links."""
    return simulator.gpus > 1 or any(each.collective is not None for each in simulator.workload.step.operations)


def _cost_model(scenario: Scenario, speed: float) -> CostModel:
    """Return the costs of a machine, divided by a compute speed."""
    model = ServerCosts(scenario.server)
    if speed == 1:
        return model
    return AdjustedCosts(
        model, lambda _workload, _layer, _phase, options: tuple(x.retimed(lambda s: s / speed) for x in options)
    )
