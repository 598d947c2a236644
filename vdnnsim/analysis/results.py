"""The results of a scenario: one per policy, each compared with the oracular baseline."""

from dataclasses import dataclass, field

from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.analysis.memory import runtime_bytes
from vdnnsim.analysis.metrics import RunMetrics
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.host import Execution
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Gpu, Server
from vdnnsim.memory.choices import MemoryChoice, PinnedMemory
from vdnnsim.plans.operations import Aggregation
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.trace import IterationTrace, ServerTrace


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


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """What came of a scenario.

    Attributes:
        sources: name as given and SHA-256 of each input file.
        oracle: base(p) on a GPU without a capacity, which every row is compared with.
        algorithm_profiling_s: time to try every algorithm of every convolution once, which any framework that picks
            the fastest spends before training.
        results: in the order of the scenario's policies; of each, one for each GPU.
        gpus: how many GPUs train together.
        gradients: how they add up their gradients; None where there is nothing to add up.
        kernels: what the plans of all rows launch.
        captured: where the workload was captured, what it was captured as.
        advice: what would make it fit, in sentences; nothing where that was not asked.
        execution: how the framework runs it.
        declined: policies that have no plan, in the order of the scenario.
        nearby: what machines like this one would do; nothing where that was not asked.
    """

    name: str
    workload: Workload
    server: Server
    memory_model: MemoryChoice
    pinned_memory: PinnedMemory
    sources: tuple[tuple[str, str], ...]
    oracle: RunMetrics
    algorithm_profiling_s: float
    results: tuple[PolicyResult, ...]
    gpus: int = 1
    gradients: Aggregation | None = None
    kernels: KernelOrigins = field(default_factory=KernelOrigins)
    captured: CapturedModel | None = None
    advice: tuple[str, ...] = ()
    execution: Execution = Execution.EAGER
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
        return tuple(max(rows, key=lambda row: (row.is_short, row.metrics.iteration_s)) for rows in self.by_policy)
