"""A device whose executions are replays, slower or with more memory as a test asks."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.machines import shipped_server
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.simulate import simulate
from vdnnsim.errors import DeviceError, ExecutionRefused
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Offload, Paged, Prefetch
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.plans.trace import IterationTrace, MemoryCount
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.validation.method import Method, given_durations
from vdnnsim.validation.row import predicted_peaks

MAXWELL = shipped_server("titan_x_maxwell")


@dataclass(frozen=True)
class FakeExecution:
    trace: IterationTrace
    peaks: MemoryCount
    ordinal: int
    loss: float = 0.0


@dataclass
class FakeLaboratory:
    """A device of the machine that the simulator knows.

    Its iterations are slower than the replay by fractions, the last of which stays. It takes `extra_bytes` beyond the
    plan, runs out of memory in the middle of one policy, and may have less memory than the limits; its library states
    workspaces by layer, phase and algorithm.
    """

    method: Method
    server: Server = MAXWELL
    slowness: list[float] = field(default_factory=lambda: [0.0])
    extra_bytes: int = 0
    out_of_memory_under: str = ""
    capacity_bytes: int = 2**60
    heeds_limits: bool = True
    executed: list[str] = field(default_factory=list)
    stated: Mapping[tuple[str, Phase], Mapping[str, int]] = field(default_factory=dict)

    def executor(self, workload: Workload) -> "FakeExecutor":
        return FakeExecutor(self, workload)


@dataclass
class FakeExecutor:
    laboratory: FakeLaboratory
    workload: Workload
    ran: TrainingPlan | None = None
    times: int = 0

    def workspaces(self, workload: Workload, layer: Layer, phase: Phase) -> Mapping[str, int]:
        assert workload.graph.name == self.workload.graph.name
        return self.laboratory.stated.get((layer.name, phase), {})

    def execute(
        self, plan: TrainingPlan, limits: MemoryLimits, pace: Mapping[int, float] | None = None
    ) -> FakeExecution | DoesNotFit:
        lab = self.laboratory
        lab.executed.append(plan.policy)
        self.times = self.times + 1 if plan is self.ran else 1
        self.ran = plan
        if any(isinstance(each, Offload | Prefetch) and isinstance(each.mechanism, Paged) for each in plan.operations):
            raise ExecutionRefused(f"{plan.policy}: page by page")
        if plan.policy == lab.out_of_memory_under:
            raise DeviceError("out of memory in the middle")
        limit_bytes = limits.device_bytes if lab.heeds_limits else lab.capacity_bytes
        limits = replace(limits, device_bytes=min(limit_bytes, lab.capacity_bytes))
        placement = place_plan(plan, limits)
        if isinstance(placement, DoesNotFit):
            return placement
        costs: CostModel = ServerCosts(lab.server)
        server = lab.server
        if pace is not None:
            assert lab.method.pacing is not None
            slower = (lab.method.pacing.times(stretch) for stretch in lab.method.pacing.stretches)
            paced = ((each.costs(costs), each.server(server)) for each in slower)
            costs, server = next(each for each in paced if pace == given_durations(plan, each[0], each[1].link))
        trace = simulate(plan, costs, server, placement, PinnedMemory.ARENA)
        slowness = lab.slowness.pop(0) if len(lab.slowness) > 1 else lab.slowness[0]
        peaks = predicted_peaks(plan, limits, caching_allocator=lab.method.caching_allocator, times=self.times)
        peaks = replace(peaks, requested_bytes=peaks.requested_bytes + lab.extra_bytes)
        return FakeExecution(slowed(trace, 1 + slowness), peaks, self.times)


def slowed(trace: IterationTrace, factor: float) -> IterationTrace:
    return replace(
        trace,
        iteration_s=trace.iteration_s * factor,
        spans=tuple(
            replace(each, issue_s=each.issue_s * factor, start_s=each.start_s * factor, end_s=each.end_s * factor)
            for each in trace.spans
        ),
        stalls=tuple(replace(each, start_s=each.start_s * factor, end_s=each.end_s * factor) for each in trace.stalls),
        memory=tuple(replace(each, time_s=each.time_s * factor) for each in trace.memory),
    )
