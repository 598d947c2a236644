"""The results of a scenario: one per policy, each compared with the oracular baseline."""

from dataclasses import dataclass

from vdnnsim.analysis.metrics import RunMetrics
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plan.placement import DoesNotFit
from vdnnsim.trace import IterationTrace


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What came of one policy on one GPU.

    Attributes:
        trace: the iteration; of a plan that does not fit, its replay on a GPU without a capacity.
        refusal: why it does not fit; None when it does.
        performance_ratio, feature_performance_ratio: the oracular baseline's time over this one's, of the whole
            iteration and of feature extraction alone.
    """

    policy: str
    algorithms: str
    gpu: int
    trace: IterationTrace
    refusal: DoesNotFit | None
    metrics: RunMetrics
    performance_ratio: float
    feature_performance_ratio: float

    @property
    def fits(self) -> bool:
        """Whether the policy trains the network on this machine."""
        return self.refusal is None


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """What came of a scenario.

    Attributes:
        sources: name as given and SHA-256 of each input file.
        oracle: base(p) on a GPU without a capacity, which every row is compared with.
        algorithm_profiling_s: time to try every algorithm of every convolution once, which any framework that picks
            the fastest spends before training.
        results: in the order of the scenario's policies.
    """

    name: str
    workload: Workload
    server: Server
    memory_model: MemoryModel
    pinned_memory: PinnedMemory
    sources: tuple[tuple[str, str], ...]
    oracle: RunMetrics
    algorithm_profiling_s: float
    results: tuple[PolicyResult, ...]
