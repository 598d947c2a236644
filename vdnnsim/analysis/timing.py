"""Time of an iteration, taken apart: kernels, stalls by cause, the share of the feature-extraction layers."""

from collections import Counter

from vdnnsim.dnn.layers import Stage
from vdnnsim.plans.operations import Compute
from vdnnsim.plans.trace import IterationTrace, StallCause


def stall_seconds(trace: IterationTrace) -> tuple[tuple[StallCause, float], ...]:
    """Return how long the compute stream stood still, by cause, longest first."""
    total: Counter[StallCause] = Counter()
    for stall in trace.stalls:
        total[stall.cause] += stall.end_s - stall.start_s  # type: ignore[assignment]  # a Counter sums floats as well
    return tuple(sorted(total.items(), key=lambda item: -item[1]))


def feature_seconds(trace: IterationTrace) -> float:
    """Return the time spent for feature extraction: its kernels, and the stalls before them or caused by copies.

    The vDNN paper compares this time alone, for the classification layers run alike under every policy (V-C).
    """
    stages = trace.plan.layer_stages
    seconds = 0.0
    for span, kernel in trace.kernels:
        if stages[kernel.layer] is Stage.FEATURES:
            seconds += span.end_s - span.start_s
    for stall in trace.stalls:
        blocked = trace.plan.operations[stall.blocked]
        assert isinstance(blocked, Compute)
        copies = stall.waited_for is not None or stall.cause is StallCause.PINNING
        if copies or stages[blocked.layer] is Stage.FEATURES:
            seconds += stall.end_s - stall.start_s
    return seconds
