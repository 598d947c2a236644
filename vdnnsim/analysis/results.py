"""The results of a scenario: what was set up, and for each policy a trace compared with the oracular baseline."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.analysis.memory import runtime_bytes
from vdnnsim.analysis.metrics import RunMetrics
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.host import Execution
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Gpu, Server
from vdnnsim.memory.choices import MemoryChoice, PinnedMemory, is_of_pytorch
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.operations import Aggregation
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.trace import IterationTrace, ServerTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a scenario and its result share.

    Attributes:
        name: stem of the scenario's file, with escapes for what cannot be printed.
        sources: (name, SHA-256) of every file that was read: the scenario first, then the captured steps, the profile
            and the tables that it names.
        gpus: how many GPUs of the server train together, each with the workload's batch.
        gradients: how they add up their gradients; None where there is nothing to add up.
        captured: where the workload was captured, what says how it is with other batches; None for a network of ours.
        execution: how the framework runs it; what was captured is fused already where that is `compiled`.
    """

    name: str
    workload: Workload
    server: Server
    memory_model: MemoryChoice
    pinned_memory: PinnedMemory
    sources: tuple[tuple[str, str], ...] = ()
    gpus: int = 1
    gradients: Aggregation | None = None
    captured: CapturedModel | None = None
    execution: Execution = Execution.EAGER


class Shortage(Enum):
    """What there is too little of."""

    GPU = "GPU memory"
    GAPS = "gaps"
    HOST = "host memory"


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What came of one policy on one GPU.

    Attributes:
        trace: the iteration; of a plan that does not fit, its replay on a GPU without a capacity.
        refusal: why it does not fit; None when it does. Where the plan of one GPU does not fit, none can train: those
            that would have the refusal of the first that does not.
        performance_ratio, feature_performance_ratio: the oracular baseline's time over this one's, of the whole
            iteration and of feature extraction alone.
        server_trace: the iteration of all GPUs, of which this one's is a part; None for one GPU alone.
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

    @property
    def fits(self) -> bool:
        """Whether the policy trains the network on this machine."""
        return self.refusal is None

    def held_bytes(self, gpu: Gpu) -> int:
        """Return what the driver counts; of what does not fit, of all that is in use at once.

        The pool of a GPU without a capacity gives nothing back.
        """
        if self.fits:
            return runtime_bytes(self.trace, gpu)
        return self.metrics.max_memory_bytes + gpu.framework_bytes(self.trace.plan.handles)

    @property
    def is_short(self) -> bool:
        """Whether it is this GPU on which memory does not suffice."""
        return self.refusal is not None and self.refusal.plan is self.trace.plan

    @property
    def shortage(self) -> Shortage | None:
        """What keeps it from fitting, gaps where all in use at once would fit; None where it fits."""
        if self.refusal is None:
            return None
        if self.refusal.pool is not Pool.DEVICE:
            return Shortage.HOST
        return Shortage.GAPS if self.metrics.max_memory_bytes <= self.refusal.capacity_bytes else Shortage.GPU


def slowest_of(rows: Iterable[PolicyResult]) -> PolicyResult:
    """Return the GPU of a policy that is done last, for which the others wait; or one on which it does not fit."""
    return max(rows, key=lambda row: (row.is_short, row.metrics.iteration_s))


@dataclass(frozen=True, slots=True)
class Declined:
    """A policy that has no plan for a scenario, and why."""

    policy: str
    reason: str

    @classmethod
    def by(cls, policy: str, refusal: PolicyError) -> "Declined":
        """Return what a policy of a label refused."""
        return cls(policy, str(refusal).removeprefix(f"{policy}: "))


@dataclass(frozen=True, slots=True)
class Nearby:
    """What a policy would take on a machine with other memory and another link.

    Attributes:
        bandwidth: of the link, over what it is.
        iteration_s: by capacity of the GPU in bytes; None where it does not fit.
    """

    policy: str
    bandwidth: float
    iteration_s: tuple[tuple[int, float | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult(Setup):
    """What came of a scenario.

    Attributes:
        oracle: base(p) on a GPU without a capacity, which every row is compared with.
        algorithm_profiling_s: time to try every algorithm of every convolution once, which any framework that picks
            the fastest spends before training.
        results: in the order of the scenario's policies; of each, one for each GPU.
        kernels: what the plans of all rows launch.
        advice: what would make it fit, in sentences; nothing where that was not asked.
        declined: policies that have no plan, in the order of the scenario.
        nearby: what machines like this one would do; nothing where that was not asked.
    """

    oracle: RunMetrics
    algorithm_profiling_s: float
    results: tuple[PolicyResult, ...]
    kernels: KernelOrigins = field(default_factory=KernelOrigins)
    advice: tuple[str, ...] = ()
    declined: tuple[Declined, ...] = ()
    nearby: tuple[Nearby, ...] = ()

    @property
    def by_policy(self) -> tuple[tuple[PolicyResult, ...], ...]:
        """The results of each policy together, by GPU."""
        starts = range(0, len(self.results), self.gpus)
        return tuple(self.results[start : start + self.gpus] for start in starts)

    @property
    def slowest(self) -> tuple[PolicyResult, ...]:
        """Of each policy the GPU that is done last, for which the others wait; or one on which it does not fit."""
        return tuple(map(slowest_of, self.by_policy))

    @property
    def fastest_fitting(self) -> tuple[PolicyResult, ...]:
        """The fastest of the policies that fit, all of them if several are equally fast; none if none fits.

        Of several GPUs the slowest of each policy counts, here and below.
        """
        fitting = [each for each in self.slowest if each.fits]
        best_s = min((each.metrics.iteration_s for each in fitting), default=0.0)
        return tuple(each for each in fitting if each.metrics.iteration_s == best_s)

    @property
    def leader(self) -> PolicyResult | None:
        """Of the fastest policies that fit the one that takes least GPU memory.

        Of equals it is the one that decided by trials, such as vdnn_dyn, which nobody had to choose; else the first.
        """
        return min(
            self.fastest_fitting,
            key=lambda each: (each.metrics.max_memory_bytes, not each.trace.plan.passes),
            default=None,
        )

    @property
    def subject(self) -> PolicyResult:
        """The one policy that a picture shows, whose numbers the text has.

        That is the leader of those that fit; where none fits, the one that would take least.
        """
        return self.leader or min(self.slowest, key=lambda each: each.held_bytes(self.server.gpu))

    @property
    def needs(self) -> tuple[tuple[str, int, int], ...]:
        """Of each memory its name, what the policy that pictures show needs of it, and what there is.

        Of several GPUs it is that of one, and its part of the host.
        """
        row, server = self.subject, self.server
        host, pinned = server.host, row.trace.host_bytes
        process = host.process_bytes if is_of_pytorch(self.memory_model) else 0
        return (
            ("device", row.held_bytes(server.gpu), server.gpu.memory_bytes),
            ("host", process + pinned, host.memory_bytes // self.gpus),
            ("pinned", pinned, (host.pinnable_bytes or host.memory_bytes) // self.gpus),
        )
