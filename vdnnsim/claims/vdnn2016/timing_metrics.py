"""The paper's numbers about time and bandwidth, computed from replays; seconds, bytes per second, shares.

Performance is that of the feature-extraction layers against the oracular baseline, as in the paper (V-C).
"""

from dataclasses import replace

from vdnnsim.analysis.dram import copied_bytes
from vdnnsim.analysis.layers import layer_times
from vdnnsim.analysis.power import maximum_watts
from vdnnsim.claims.vdnn2016.runs import Case, PaperRuns
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.plan.operations import Compute, Stream
from vdnnsim.plan.placement import DoesNotFit, place_plan
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.port import Setting, Trial
from vdnnsim.simulator import Simulator


def feature_throughput(runs: PaperRuns, case: Case, policy: str) -> float:
    """Speed over that of the oracular baseline."""
    return runs.result(*case, policy).feature_performance_ratio


def feature_loss(runs: PaperRuns, case: Case, policy: str) -> float:
    """By how much the speed lies below that of the oracular baseline."""
    return 1 - feature_throughput(runs, case, policy)


def slowest(runs: PaperRuns, cases: tuple[Case, ...], policy: str) -> str:
    """Which network loses most, and what the policy settled on for it: `vgg16(256) under all(p)`."""
    network, batch_size = min(cases, key=lambda case: feature_throughput(runs, case, policy))
    return f"{network}({batch_size}) under {runs.result(network, batch_size, policy).algorithms}"


def reuse_distance(runs: PaperRuns, case: Case, policy: str) -> float:
    """Time between the end of the first layer's forward and the start of its backward (Fig. 6)."""
    distance_s = layer_times(runs.result(*case, policy).trace)[0].reuse_distance_s
    assert distance_s is not None
    return distance_s


def conv_share(runs: PaperRuns, case: Case, policy: str) -> float:
    """Share of kernel time, forward and backward, that CONV layers take."""
    trace = runs.result(*case, policy).trace
    layers = runs.bench(*case).workload.graph.layers
    total_s = conv_s = 0.0
    for span in trace.spans_on(Stream.COMPUTE):
        kernel = trace.plan.operations[span.operation]
        assert isinstance(kernel, Compute)
        total_s += span.end_s - span.start_s
        if layers[kernel.layer].kind is LayerKind.CONV:
            conv_s += span.end_s - span.start_s
    return conv_s / total_s


def copy_bandwidth(runs: PaperRuns, case: Case, policy: str) -> float:
    """Bytes over time of all copies between GPU and host."""
    trace = runs.result(*case, policy).trace
    copies = trace.spans_on(Stream.MEMORY)
    return sum(copied_bytes(trace, copy) for copy in copies) / sum(copy.end_s - copy.start_s for copy in copies)


def power_overhead(runs: PaperRuns, case: Case, policy: str) -> float:
    """By how much the maximum power of a policy exceeds that of the baseline with the same algorithms.

    Where the baseline does not fit with performance-optimal algorithms, the paper ran both with memory-optimal ones
    (V-D): there vdnn_conv(m) is held against base(m).
    """
    baseline, other = "base(p)", policy
    if not runs.oracle(*case).fits:
        baseline, other = "base(m)", "vdnn_conv(m)"
    bench = runs.bench(*case)
    before_watts, after_watts = (
        maximum_watts(runs.result(*case, label).trace, bench.cost_model, runs.server) for label in (baseline, other)
    )
    return after_watts / before_watts - 1


def passes_of(runs: PaperRuns, case: Case, policy: str) -> str:
    """The profiling passes of a dynamic policy where every trial but the first fails, in their order."""
    bench = runs.bench(*case)
    setting = Setting(bench.workload, bench.cost_model, bench.limits, _OnlyTheFirstPasses(bench))
    return "; ".join(each.name for each in runs.policy(policy).plan(setting).passes)


class _OnlyTheFirstPasses:
    """A port through which the first plan fits, and no other."""

    def __init__(self, bench: Simulator) -> None:
        self._bench = bench
        self._first: TrainingPlan | None = None

    def run_trial(self, plan: TrainingPlan) -> Trial:
        """Run the first plan and refuse the others as if the GPU had no memory."""
        self._first = self._first or plan
        if plan is self._first:
            return self._bench.run_trial(plan)
        refusal = place_plan(plan, replace(self._bench.limits, device_bytes=0))
        assert isinstance(refusal, DoesNotFit)
        return Trial(refusal, 0.0)
