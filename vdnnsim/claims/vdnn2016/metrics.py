"""Metrics of the claims of the vDNN paper: bytes, seconds, bytes per second, shares between 0 and 1.

Scopes are those of the paper. Feature extraction means the buffers of those layers alone: X, Y, dX, dY, workspace, W
and dW. Reductions divide it by the whole network-wide baseline (V-A, Fig. 11); the report has whole against whole as
well. Performance is that of the feature-extraction layers against the oracular baseline (V-C).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from vdnnsim.analysis.memory import features_only, maximum_bytes
from vdnnsim.claims.check import Metric, Metrics, OfAll
from vdnnsim.claims.claim import Claim, NetworkBatch
from vdnnsim.claims.vdnn2016.layers import largest_layer, training_bytes
from vdnnsim.claims.vdnn2016.power import copied_bytes, copy_slowdown_bound, power_curve
from vdnnsim.claims.vdnn2016.runs import ALL_TEN, CONVENTIONAL, ORACLE, VERY_DEEP, VdnnRuns
from vdnnsim.dnn.layers import LayerKind, Phase, Stage
from vdnnsim.plans.operations import Compute, Stream
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.interface import Setting, Trial
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import GIB

VDNN_POLICIES = ("vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(m)", "vdnn_conv(p)", "vdnn_dyn")
"""Any vDNN policy, in the paper's words."""
PAPER_CAPACITY_BYTES = 12 * GIB


def baseline_bytes(runs: VdnnRuns, case: NetworkBatch) -> float:
    """The network-wide allocation of the baseline, whole network."""
    return runs.result(*case, ORACLE).metrics.allocated_bytes


def mean_reduction(runs: VdnnRuns, case: NetworkBatch, policy: str) -> float:
    """Reduction of the mean over layer steps of feature extraction against the whole baseline."""
    return 1 - runs.result(*case, policy).metrics.feature_step_mean_allocated_bytes / baseline_bytes(runs, case)


def whole_mean_reduction(runs: VdnnRuns, case: NetworkBatch, policy: str) -> float:
    """Reduction of the mean over time of the whole network against the baseline."""
    return 1 - runs.result(*case, policy).metrics.mean_allocated_bytes / baseline_bytes(runs, case)


def unused_share(runs: VdnnRuns, case: NetworkBatch) -> float:
    """Share of the network-wide allocation that no single layer uses (Fig. 1, right axis)."""
    simulator = runs.simulator(*case)
    kernels = choose_kernels(simulator.workload, simulator.costs, Algorithms.PERFORMANCE_OPTIMAL)
    _, need = largest_layer(simulator.workload, kernels)
    return 1 - need.total / baseline_bytes(runs, case)


def feature_share(runs: VdnnRuns, case: NetworkBatch, reading: str) -> float:
    """Share of memory in feature-extraction layers.

    `baseline` counts the buffers of the network-wide allocation, `without_gradients` leaves out dW, `sum_of_layers`
    adds the needs of each layer alone: X, Y, dX, dY, W, dW and the larger of its workspaces.
    """
    if reading == "sum_of_layers":
        simulator = runs.simulator(*case)
        kernels = choose_kernels(simulator.workload, simulator.costs, Algorithms.PERFORMANCE_OPTIMAL)
        layers = [layer for layer in simulator.workload.graph.layers if not layer.in_place]
        needs = [(training_bytes(simulator.workload, kernels, layer).total, layer.stage) for layer in layers]
        return sum(n for n, stage in needs if stage is Stage.FEATURES) / sum(n for n, _ in needs)
    trace = runs.result(*case, ORACLE).trace
    allocated = [trace.plan.buffers[change.buffer] for change in trace.memory if change.delta_bytes > 0]
    counted = [b for b in allocated if reading == "baseline" or b.kind is not BufferKind.WEIGHT_GRADIENT]
    return sum(b.nbytes for b in counted if features_only(b)) / sum(b.nbytes for b in counted)


def gpu_memory(runs: VdnnRuns, case: NetworkBatch, policy: str, reading: str) -> float:
    """Peak of GPU memory: `whole`, or `features_weights_once`, without classifier and dW."""
    if reading == "whole":
        return runs.result(*case, policy).metrics.allocated_bytes

    def counted(buffer: Buffer) -> bool:
        return features_only(buffer) and buffer.kind is not BufferKind.WEIGHT_GRADIENT

    return maximum_bytes(runs.result(*case, policy).trace, counted)


def host_share(runs: VdnnRuns, case: NetworkBatch, policy: str) -> float:
    """Share of pinned host memory in all memory of a policy, GPU memory at its peak."""
    metrics = runs.result(*case, policy).metrics
    return metrics.host_memory_bytes / (metrics.host_memory_bytes + metrics.allocated_bytes)


def reuse_distance(runs: VdnnRuns, case: NetworkBatch, policy: str) -> float:
    """Time between the end of the first layer's forward and the start of its backward (Fig. 6)."""
    own = [(span, each.phase) for span, each in runs.result(*case, policy).trace.kernels if each.layer == 0]
    end_s = [span.end_s for span, phase in own if phase is Phase.FORWARD][-1]
    return next(span.start_s for span, phase in own if phase.is_backward) - end_s


def conv_share(runs: VdnnRuns, case: NetworkBatch, policy: str) -> float:
    """Share of CONV layers in kernel time, forward and backward."""
    trace = runs.result(*case, policy).trace
    layers = runs.simulator(*case).workload.graph.layers
    total_s = conv_s = 0.0
    for span in trace.spans_on(Stream.COMPUTE):
        kernel = trace.plan.operations[span.operation]
        assert isinstance(kernel, Compute)
        total_s += span.end_s - span.start_s
        if layers[kernel.layer].kind is LayerKind.CONV:
            conv_s += span.end_s - span.start_s
    return conv_s / total_s


def copy_bandwidth(runs: VdnnRuns, case: NetworkBatch, policy: str) -> float:
    """Bytes over time of all copies between GPU and host."""
    trace = runs.result(*case, policy).trace
    copies = trace.spans_on(Stream.MEMORY)
    return sum(copied_bytes(trace, copy) for copy in copies) / sum(copy.end_s - copy.start_s for copy in copies)


def power_overhead(runs: VdnnRuns, case: NetworkBatch, policy: str) -> float:
    """Relative increase of the maximum power of a policy over the baseline with the same algorithms.

    If base(p) does not fit, the paper ran both with memory-optimal algorithms (V-D): vdnn_conv(m) over base(m).
    """
    baseline, other = "base(p)", policy
    if not runs.oracle(*case).fits:
        baseline, other = "base(m)", "vdnn_conv(m)"
    simulator = runs.simulator(*case)
    before_watts, after_watts = (
        power_curve(runs.result(*case, label).trace, simulator.cost_model, runs.server).maximum_watts()
        for label in (baseline, other)
    )
    return after_watts / before_watts - 1


def passes_of(runs: VdnnRuns, case: NetworkBatch, policy: str) -> str:
    """The profiling passes of a dynamic policy if every trial but the first fails."""
    simulator = runs.simulator(*case)
    setting = Setting(simulator.workload, simulator.cost_model, simulator.limits, _OnlyTheFirstPasses(simulator))
    return "; ".join(each.name for each in runs.policy(policy).plan(setting).passes)


class _OnlyTheFirstPasses:
    """Trials of which only the first plan fits."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._first: TrainingPlan | None = None

    def run_trial(self, plan: TrainingPlan) -> Trial:
        self._first = self._first or plan
        if plan is self._first:
            return self._simulator.run_trial(plan)
        refusal = place_plan(plan, replace(self._simulator.limits, device_bytes=0))
        assert isinstance(refusal, DoesNotFit)
        return Trial(refusal, 0.0)


def _exceeding(cases: Sequence[NetworkBatch], sizes: Sequence[float]) -> str:
    return " ".join(_name(case) for case, size in zip(cases, sizes, strict=True) if size > PAPER_CAPACITY_BYTES)


def _slowest(cases: Sequence[NetworkBatch], found: Sequence[tuple[float, str]]) -> str:
    _, *words = min((speed, _name(case), algorithms) for case, (speed, algorithms) in zip(cases, found, strict=True))
    return " under ".join(words)


def _name(case: NetworkBatch) -> str:
    return f"{case[0]}({case[1]})"


def _metric(words: str, compute: Callable[[VdnnRuns, NetworkBatch, Claim], Any], of_all: OfAll | None = None) -> Metric:
    return Metric(words, lambda runs, claim, case: compute(runs, case, claim), of_all)


def _max_memory(runs: VdnnRuns, case: NetworkBatch, claim: Claim) -> float:
    return runs.result(*case, claim.policy).metrics.allocated_bytes


def _best(
    reduction: Callable[[VdnnRuns, NetworkBatch, str], float],
) -> Callable[[VdnnRuns, NetworkBatch, Claim], float]:
    """Return the largest reduction by any vDNN policy."""
    return lambda runs, case, _: max(reduction(runs, case, policy) for policy in VDNN_POLICIES)


_NAMED: Final[Mapping[str, Metric]] = {
    "page_bandwidth": _metric("rate of paged copies", lambda r, c, q: copy_bandwidth(r, c, q.policy)),
    "copy_bandwidth": _metric("rate of pinned copies", lambda r, c, q: copy_bandwidth(r, c, q.policy)),
    "max_memory": _metric("maximum memory", _max_memory),
    "unused_share": _metric("share that no single layer uses", lambda r, c, _: unused_share(r, c)),
    "fits": _metric("fits", lambda r, c, q: "yes" if r.result(*c, q.policy).fits else "no"),
    "feature_max_memory": _metric(
        "maximum memory, feature extraction", lambda r, c, q: r.result(*c, q.policy).metrics.feature_allocated_bytes
    ),
    "offloaded": _metric("offloaded per iteration", lambda r, c, q: r.result(*c, q.policy).metrics.offloaded_bytes),
    "max_reduction": _metric(
        "reduction of maximum memory",
        lambda r, c, q: 1 - r.result(*c, q.policy).metrics.feature_allocated_bytes / baseline_bytes(r, c),
    ),
    "mean_reduction": _metric("reduction of mean memory", lambda r, c, q: mean_reduction(r, c, q.policy)),
    "best_mean_reduction": _metric("largest reduction of mean memory", _best(mean_reduction)),
    "whole_max_reduction": _metric(
        "reduction of maximum memory, whole network", lambda r, c, q: 1 - _max_memory(r, c, q) / baseline_bytes(r, c)
    ),
    "whole_mean_reduction": _metric(
        "reduction of mean memory over time, whole network", lambda r, c, q: whole_mean_reduction(r, c, q.policy)
    ),
    "best_whole_mean_reduction": _metric(
        "largest reduction of mean memory over time, whole network", _best(whole_mean_reduction)
    ),
    "host_share": _metric("share of CPU memory", lambda r, c, q: host_share(r, c, q.policy)),
    "feature_loss": _metric("performance loss", lambda r, c, q: 1 - r.result(*c, q.policy).feature_performance_ratio),
    "feature_throughput": _metric(
        "throughput over base(p)", lambda r, c, q: r.result(*c, q.policy).feature_performance_ratio
    ),
    "reuse_distance": _metric("reuse distance of the first X", lambda r, c, q: reuse_distance(r, c, q.policy)),
    "conv_share": _metric("share of CONV in kernel time", lambda r, c, q: conv_share(r, c, q.policy)),
    "passes": _metric("profiling passes", lambda r, c, q: passes_of(r, c, q.policy)),
    "power_overhead": _metric("overhead of maximum power", lambda r, c, q: power_overhead(r, c, q.policy)),
    "feature_share": _metric("share of feature extraction in memory", lambda r, c, q: feature_share(r, c, q.reading)),
    "gpu_memory": _metric("maximum memory", lambda r, c, q: gpu_memory(r, c, q.policy, q.reading)),
    "dram_slowdown": _metric(
        "most that copies cost a kernel bound by DRAM", lambda r, *_: copy_slowdown_bound(r.server)
    ),
    "growth": _metric("growth of memory", _max_memory, lambda _, sizes: sizes[-1] / sizes[0]),
    "grows": _metric(
        "memory grows from network to network",
        _max_memory,
        lambda _, sizes: "yes" if all(a < b for a, b in pairwise(sizes)) else "no",
    ),
    "exceeding": _metric("networks that need more than 12 GiB", _max_memory, _exceeding),
    "slowest": _metric(
        "network that loses most",
        lambda r, c, q: (r.result(*c, q.policy).feature_performance_ratio, r.result(*c, q.policy).algorithms),
        _slowest,
    ),
}


def _seen_in(_claim: Claim, cases: Sequence[NetworkBatch]) -> str:
    if len(cases) > 1:
        return f"{len(cases)} networks"
    ((network, batch_size),) = cases
    return f"scenarios/{network}_{batch_size}.yaml" if network == "vgg16" else f"scenarios/{network}.yaml"


METRICS: Final = Metrics[VdnnRuns](
    _NAMED,
    _seen_in,
    {
        "conventional": CONVENTIONAL,
        "very_deep": VERY_DEEP,
        "all": ALL_TEN,
        # By claim v-mem-6.
        "exceeding": (("vgg16", 128), ("vgg16", 256), *VERY_DEEP),
    },
)
