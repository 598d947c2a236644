"""Results of a scenario: its set-up, and for each policy a trace compared with the oracular baseline."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from vdnnsim.analysis.answer import Answer
from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.analysis.memory import process_bytes
from vdnnsim.analysis.metrics import RunMetrics
from vdnnsim.cost.trust import certain_bytes
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.host import Execution
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Gpu, Server
from vdnnsim.memory.choices import MemoryChoice, PinnedMemory, is_of_pytorch, settings_of
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.operations import Aggregation
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.trace import IterationTrace, ServerTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Fields that a scenario and its result share.

    Attributes:
        name: stem of the scenario's file, unprintable characters escaped.
        sources: (name, SHA-256) of every input: the scenario first, then captured steps, profile and its tables.
        gpus: number of GPUs that train together, each with the workload's batch.
        captured: the captured model of the workload at any batch size; None for a built network.
        execution: how the framework runs it; with `compiled` a captured step is fused already.
    """

    name: str
    workload: Workload
    server: Server = field(repr=False)
    memory_model: MemoryChoice
    pinned_memory: PinnedMemory
    sources: tuple[tuple[str, str], ...] = ()
    gpus: int = 1
    gradients: Aggregation | None = None
    captured: CapturedModel | None = field(default=None, compare=False)
    execution: Execution = Execution.EAGER

    @property
    def batches(self) -> int:
        """How many batches these GPUs train in an iteration, one each, or one through all stages of a pipeline."""
        return 1 if self.workload.as_captured else self.gpus

    @property
    def room_bytes(self) -> int:
        """Memory in which a simulated peak surely fits: of a captured model even if it is as low as peaks may be."""
        memory_bytes = self.server.gpu.memory_bytes
        return memory_bytes if self.captured is None else certain_bytes(memory_bytes)


def needed_bytes(plan: TrainingPlan, allocated: int, reserved: int, gpu: Gpu, memory_model: MemoryChoice) -> int:
    """Return the process memory without what a reservation leaves free: where one is made ahead, of its blocks."""
    return gpu.framework_bytes(plan.handles) + (allocated if _reserves_ahead(plan, memory_model) else reserved)


def _reserves_ahead(plan: TrainingPlan, memory_model: MemoryChoice) -> bool:
    settings = settings_of(plan.memory_model or memory_model)
    return settings is not None and settings.preallocated


class Shortage(Enum):
    """The memory that does not suffice."""

    GPU = "GPU memory"
    GAPS = "gaps"
    HOST = "host memory"


@dataclass(frozen=True, slots=True, repr=False)
class PolicyResult:
    """Result of one policy on one GPU.

    Attributes:
        trace: the iteration; of a plan that does not fit, its replay with unlimited memory.
        refusal: why it does not fit; None where it does. Where it does not fit on one GPU, all have that refusal.
        performance_ratio, feature_performance_ratio: the oracular baseline's time over this one's, of the whole
            iteration and of feature extraction alone.
        server_trace: the iteration of all GPUs; None on one GPU.
    """

    policy: str
    algorithms: str
    gpu: int
    trace: IterationTrace
    refusal: DoesNotFit | None
    metrics: RunMetrics
    performance_ratio: float
    feature_performance_ratio: float
    server_trace: ServerTrace | None = None

    def __repr__(self) -> str:
        """Return its numbers; those of its plan would be megabytes."""
        took, most = format_seconds(self.metrics.iteration_s), format_bytes(self.metrics.allocated_bytes)
        return f"<{self.policy}: {took}, {most} allocated, {'fits' if self.fits else 'does not fit'}>"

    @property
    def fits(self) -> bool:
        return self.refusal is None

    def held_bytes(self, gpu: Gpu) -> int:
        """Return the process memory, gaps included; of a plan that does not fit, in unlimited memory."""
        return process_bytes(self.trace, gpu)

    def needed_bytes(self, gpu: Gpu, memory_model: MemoryChoice) -> int:
        allocated, reserved = self.metrics.allocated_bytes, self.trace.pool_bytes
        return needed_bytes(self.trace.plan, allocated, reserved, gpu, memory_model)

    def reserves_ahead(self, memory_model: MemoryChoice) -> bool:
        """Whether memory is reserved ahead, by its plan or by the memory model that is asked about."""
        return _reserves_ahead(self.trace.plan, memory_model)

    @property
    def is_short(self) -> bool:
        """Whether it is this GPU on which the plan does not fit."""
        return self.refusal is not None and self.refusal.plan is self.trace.plan

    @property
    def shortage(self) -> Shortage | None:
        """The memory that does not suffice, gaps where the peak in use would fit; None where it fits."""
        if self.refusal is None:
            return None
        if self.refusal.pool is not Pool.DEVICE:
            return Shortage.HOST
        return Shortage.GAPS if self.metrics.allocated_bytes <= self.refusal.capacity_bytes else Shortage.GPU


def slowest_of(rows: Iterable[PolicyResult]) -> PolicyResult:
    """Return the slowest GPU of a policy, or one on which it does not fit; of equal ones that with the most memory."""
    return max(rows, key=lambda row: (row.is_short, row.metrics.iteration_s, row.trace.pool_bytes))


@dataclass(frozen=True, slots=True)
class Declined:
    """A policy that has no plan for a scenario, and why."""

    policy: str
    reason: str

    @classmethod
    def by(cls, policy: str, refusal: PolicyError) -> "Declined":
        return cls(policy, str(refusal).removeprefix(f"{policy}: "))


@dataclass(frozen=True, slots=True)
class Nearby:
    """Times of a policy with a link of `bandwidth` times its own, by capacity in bytes; None where it does not fit."""

    policy: str
    bandwidth: float
    iteration_s: tuple[tuple[int, float | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScenarioResult(Setup):
    """Result of a scenario.

    Attributes:
        oracle: metrics of the oracular baseline, base(p) with unlimited memory.
        algorithm_profiling_s: time to run every algorithm of every convolution once, as a framework that picks the
            fastest does.
        results: in the order of the scenario's policies, one for each GPU.
        answer: what was tried so that it fits; empty if not requested.
        nearby: results on similar machines; empty if not requested.
    """

    oracle: RunMetrics
    algorithm_profiling_s: float
    results: tuple[PolicyResult, ...] = field(repr=False)
    kernels: KernelOrigins = field(default_factory=KernelOrigins, repr=False)
    answer: Answer = field(default_factory=Answer)
    declined: tuple[Declined, ...] = ()
    nearby: tuple[Nearby, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        """Return what was replayed, and a line for each policy, of several GPUs the slowest."""
        what = f"<{self.name}: {self.workload.graph.name} ({self.workload.batch_size}) on {self.server.name}>"
        rows = {each.policy: repr(each) for each in self.slowest}
        rows |= {each.policy: f"<{each.policy}: no plan: {each.reason}>" for each in self.declined}
        return "\n".join((what, *rows.values()))

    @property
    def by_policy(self) -> tuple[tuple[PolicyResult, ...], ...]:
        """The results of each policy together, by GPU."""
        starts = range(0, len(self.results), self.gpus)
        return tuple(self.results[start : start + self.gpus] for start in starts)

    @property
    def slowest(self) -> tuple[PolicyResult, ...]:
        """The slowest GPU of each policy, or one on which it does not fit."""
        return tuple(map(slowest_of, self.by_policy))

    @property
    def fastest_fitting(self) -> tuple[PolicyResult, ...]:
        """The fastest policies that fit, by their slowest GPUs; empty if none fits."""
        fitting = [each for each in self.slowest if each.fits]
        best_s = min((each.metrics.iteration_s for each in fitting), default=0.0)
        return tuple(each for each in fitting if each.metrics.iteration_s == best_s)

    @property
    def fits_surely(self) -> bool:
        """Whether a policy surely fits."""
        return any(map(self.surely_fits, self.slowest))

    @property
    def may_be_faster(self) -> bool:
        """Whether what keeps all that autograd saves does not surely fit, so that other loops may be faster."""
        return any(not self.surely_fits(row) for row in self.slowest if row.policy.startswith("pytorch"))

    def surely_fits(self, row: PolicyResult) -> bool:
        """Whether a row fits even if its peak is too low by as much as peaks are known to be."""
        return row.fits and self.needed_bytes(row) <= self.room_bytes

    def needed_bytes(self, row: PolicyResult) -> int:
        return row.needed_bytes(self.server.gpu, self.memory_model)

    def just_fits(self, row: PolicyResult) -> bool:
        """Whether a row fits by its simulated peak alone."""
        return row.fits and not self.surely_fits(row)

    @property
    def surely_fastest(self) -> PolicyResult | None:
        """The fastest policy that fits even if its peak is too low by as much as peaks are known to be."""
        sure = filter(self.surely_fits, self.slowest)
        return min(sure, key=lambda row: (row.metrics.iteration_s, row.metrics.allocated_bytes), default=None)

    @property
    def leader(self) -> PolicyResult | None:
        """The fastest policy that fits, of equal ones that with the least memory, then one that decided by trials."""
        return min(
            self.fastest_fitting,
            key=lambda each: (each.metrics.allocated_bytes, not each.trace.plan.passes),
            default=None,
        )

    @property
    def subject(self) -> PolicyResult:
        """The policy that pictures and text show: the leader, or the one with the least memory where none fits."""
        return self.leader or min(self.slowest, key=self.needed_bytes)

    @property
    def needs(self) -> tuple[tuple[str, int, int], ...]:
        """Name, bytes needed by the subject, and capacity of each memory; of one GPU and its share of the host."""
        row, server = self.subject, self.server
        host, pinned, sharing = server.host, row.trace.host_bytes, self.sharing_a_host
        process = host.process_bytes if is_of_pytorch(self.memory_model) else 0
        return (
            ("GPU", self.needed_bytes(row), server.gpu.memory_bytes),
            ("host", process + pinned, host.memory_bytes // sharing),
            ("pinned", pinned, (host.pinnable_bytes or host.memory_bytes) // sharing),
        )

    @property
    def sharing_a_host(self) -> int:
        """How many GPUs or ranks have equal shares of the host's memory."""
        ranks = self.captured.base.ranks if self.captured else 1
        return max(self.gpus, min(ranks, self.server.gpu_count))
