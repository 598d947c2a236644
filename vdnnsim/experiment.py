"""One scenario, all parts together: plan, check, place, replay, measure each policy."""

from dataclasses import dataclass, replace

from vdnnsim.analysis.metrics import RunMetrics, measure
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.cost.build import build_cost_table
from vdnnsim.cost.table import CostTable
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.simulate import simulate
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plan.check import check_plan
from vdnnsim.plan.placement import DoesNotFit, MemoryLimits, Placement, place_plan
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.port import Policy, Setting, Trial
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.trace import IterationTrace

UNLIMITED_BYTES = 2**60
"""Memory of the oracular GPU and its host."""


def run_scenario(scenario: Scenario) -> ScenarioResult:
    """Replay every policy of a scenario and compare each with the oracular base(p)."""
    bench = Bench.of(scenario.workload, scenario.server, scenario.memory_model, scenario.pinned_memory)
    oracle = bench.oracle()
    return ScenarioResult(
        name=scenario.name,
        workload=scenario.workload,
        server=scenario.server,
        memory_model=scenario.memory_model,
        pinned_memory=scenario.pinned_memory,
        sources=scenario.sources,
        oracle=oracle,
        algorithm_profiling_s=algorithm_profiling_seconds(scenario.workload, bench.costs),
        results=tuple(bench.run(policy, oracle) for policy in scenario.policies),
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """A workload on a machine, ready to run policies; it is also the port through which they run their trials."""

    workload: Workload
    server: Server
    costs: CostTable
    limits: MemoryLimits
    pinned: PinnedMemory

    @classmethod
    def of(cls, workload: Workload, server: Server, model: MemoryModel, pinned: PinnedMemory) -> "Bench":
        """Build the cost table and the limits of a workload on a machine."""
        limits = MemoryLimits(
            model=model,
            device_bytes=server.gpu.memory_bytes,
            host_bytes=server.host.memory_bytes,
            granule_bytes=server.gpu.granule_bytes,
        )
        return cls(workload, server, build_cost_table(workload, server), limits, pinned)

    def run(self, policy: Policy, oracle: RunMetrics) -> PolicyResult:
        """Plan and replay one policy; where its plan does not fit, replay it without a capacity."""
        plan = policy.plan(Setting(self.workload, self.costs, self.limits, self))
        check_plan(plan)
        placement = place_plan(plan, self.limits)
        refusal = None
        if isinstance(placement, DoesNotFit):
            refusal, placement = placement, self._place_unlimited(plan)
        trace = self._replay(plan, placement)
        metrics = measure(trace, self.workload.batch_size)
        return PolicyResult(
            policy=plan.policy,
            algorithms=plan.algorithms,
            gpu=0,
            trace=trace,
            refusal=refusal,
            metrics=metrics,
            performance_ratio=oracle.iteration_s / metrics.iteration_s,
            feature_performance_ratio=oracle.feature_iteration_s / metrics.feature_iteration_s,
        )

    def oracle(self) -> RunMetrics:
        """Return what base(p) would do on a GPU without a capacity."""
        plan = Base().plan(Setting(self.workload, self.costs, self.limits, self))
        return measure(self._replay(plan, self._place_unlimited(plan)), self.workload.batch_size)

    def run_trial(self, plan: TrainingPlan) -> Trial:
        """Replay a plan once; of one that does not fit, replay the part before memory ran out to know its cost."""
        check_plan(plan)
        placement = place_plan(plan, self.limits)
        if isinstance(placement, Placement):
            trace = self._replay(plan, placement)
            return Trial(trace, trace.iteration_s)
        begun = replace(plan, operations=plan.operations[: placement.operation])
        return Trial(placement, self._replay(begun, self._place_unlimited(begun)).iteration_s)

    def _replay(self, plan: TrainingPlan, placement: Placement) -> IterationTrace:
        return simulate(plan, self.costs, self.server, placement, self.pinned)

    def _place_unlimited(self, plan: TrainingPlan) -> Placement:
        unlimited = replace(self.limits, device_bytes=UNLIMITED_BYTES, host_bytes=UNLIMITED_BYTES)
        placement = place_plan(plan, unlimited)
        assert isinstance(placement, Placement)
        return placement


def algorithm_profiling_seconds(workload: Workload, costs: CostTable) -> float:
    """Return the time to run every algorithm of every convolution kernel once."""
    return sum(
        kernel.seconds
        for layer in workload.graph.layers
        if layer.kind is LayerKind.CONV
        for phase in workload.phases(layer)
        for kernel in costs.options(layer.index, phase)
    )
