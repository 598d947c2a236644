"""Metrics of one iteration from its trace: time, throughput, memory, copies, stalls by cause.

The `feature_` metrics count feature-extraction layers alone, the scope of the vDNN paper.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from vdnnsim.analysis.memory import features_only, maximum_bytes, mean_bytes, peak_by_kind, step_mean_bytes
from vdnnsim.dnn.collective import CollectiveKind
from vdnnsim.dnn.layers import Stage
from vdnnsim.plans.operations import Communicate, Compute, Offload, Prefetch
from vdnnsim.plans.trace import IterationTrace, StallCause
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.units import format_bytes, format_seconds


def stall_seconds(trace: IterationTrace) -> tuple[tuple[StallCause, float], ...]:
    total: Counter[StallCause] = Counter()
    for stall in trace.stalls:
        total[stall.cause] += stall.end_s - stall.start_s  # type: ignore[assignment]  # a Counter sums floats as well
    return tuple(sorted(total.items(), key=lambda item: -item[1]))


def feature_seconds(trace: IterationTrace) -> float:
    """Return the time of feature extraction: its kernels, and stalls before them or by copies (vDNN paper, V-C)."""
    stages, seconds = trace.plan.layer_stages, 0.0
    for span, kernel in trace.kernels:
        if stages[kernel.layer] is Stage.FEATURES:
            seconds += span.end_s - span.start_s
    for stall in trace.stalls:
        blocked = trace.plan.operations[stall.blocked]
        assert isinstance(blocked, Compute | Communicate)
        copies = stall.waited_for is not None or stall.cause is StallCause.PINNING
        if copies or stages[blocked.layer] is Stage.FEATURES:
            seconds += stall.end_s - stall.start_s
    return seconds


@dataclass(frozen=True, slots=True, repr=False)
class RunMetrics:
    """Metrics of one replay; sizes in bytes, times in seconds.

    Attributes:
        samples_per_s: batch size over iteration time.
        allocated_bytes, mean_allocated_bytes: of bytes in use by the whole network.
        reserved_bytes: what the memory model needed, gaps included.
        feature_step_mean_allocated_bytes: mean over layer steps, the average of the vDNN paper.
        stall_by_cause: of the compute stream, before or between kernels.
    """

    iteration_s: float
    samples_per_s: float
    allocated_bytes: int
    mean_allocated_bytes: float
    reserved_bytes: int
    peak_by_kind: tuple[tuple[BufferKind, int], ...]
    feature_allocated_bytes: int
    feature_step_mean_allocated_bytes: float
    feature_iteration_s: float
    offloaded_bytes: int
    prefetched_bytes: int
    host_memory_bytes: int
    stall_s: float
    stall_by_cause: tuple[tuple[StallCause, float], ...]

    def __repr__(self) -> str:
        """Return a line for each quantity, with its unit; those of feature extraction are left out."""
        lines = {
            "iteration": format_seconds(self.iteration_s),
            "samples per second": f"{self.samples_per_s:.4g}",
            "allocated, maximum": format_bytes(self.allocated_bytes),
            **{f"  {kind.words}": format_bytes(nbytes) for kind, nbytes in self.peak_by_kind},
            "allocated, mean": format_bytes(self.mean_allocated_bytes),
            "reserved": format_bytes(self.reserved_bytes),
            "offloaded": format_bytes(self.offloaded_bytes),
            "prefetched": format_bytes(self.prefetched_bytes),
            "pinned host memory": format_bytes(self.host_memory_bytes),
            "stalled": format_seconds(self.stall_s),
            **{f"  {cause.value}": format_seconds(seconds) for cause, seconds in self.stall_by_cause},
        }
        width = max(map(len, lines))
        return "\n".join(f"{name:{width}}  {text}" for name, text in lines.items())


def performance_ratios(oracle: RunMetrics, metrics: RunMetrics) -> tuple[float, float]:
    """Return the oracular baseline's time over this one's, of the whole iteration and of feature extraction alone."""
    return oracle.iteration_s / metrics.iteration_s, oracle.feature_iteration_s / metrics.feature_iteration_s


def bubble_seconds(ranks: Sequence[RunMetrics]) -> float:
    """Return how long the ranks of a pipeline wait for other stages, on average."""
    return fmean(dict(each.stall_by_cause).get(StallCause.PIPELINE, 0.0) for each in ranks)


def measure(trace: IterationTrace, batch_size: int, pipeline_s: float | None = None) -> RunMetrics:
    """Return the metrics of an iteration.

    Args:
        trace: the iteration.
        batch_size: its samples.
        pipeline_s: when the last rank of a pipeline is done, for which the others wait before they begin anew.
    """
    plan, stalls, feature_s = trace.plan, stall_seconds(trace), feature_seconds(trace)
    if pipeline_s is not None:
        wait_s = pipeline_s - trace.iteration_s
        waits = Counter(dict(stalls)) + Counter({StallCause.PIPELINE: wait_s})
        stalls, feature_s = tuple(waits.most_common()), feature_s + wait_s
        trace = replace(trace, iteration_s=pipeline_s)
    return RunMetrics(
        iteration_s=trace.iteration_s,
        samples_per_s=batch_size / trace.iteration_s,
        allocated_bytes=maximum_bytes(trace),
        mean_allocated_bytes=mean_bytes(trace),
        reserved_bytes=trace.pool_bytes,
        peak_by_kind=peak_by_kind(trace),
        feature_allocated_bytes=maximum_bytes(trace, features_only),
        feature_step_mean_allocated_bytes=step_mean_bytes(trace, features_only),
        feature_iteration_s=feature_s,
        offloaded_bytes=_copied_bytes(plan, Offload, CollectiveKind.TO_HOST),
        prefetched_bytes=_copied_bytes(plan, Prefetch, CollectiveKind.FROM_HOST),
        host_memory_bytes=trace.host_bytes,
        stall_s=sum((seconds for _, seconds in stalls), 0.0),
        stall_by_cause=stalls,
    )


def _copied_bytes(plan: TrainingPlan, kind: type[Offload | Prefetch], by_rank: CollectiveKind) -> int:
    """Return the bytes of copies of a kind, or of a captured rank."""
    total = sum(plan.copied_bytes(each) for each in plan.operations if isinstance(each, kind))
    exchanges = (each.collective for each in plan.operations if isinstance(each, Communicate))
    return total + sum(each.nbytes for each in exchanges if each is not None and each.kind is by_rank)
