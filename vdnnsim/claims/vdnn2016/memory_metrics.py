"""The paper's numbers about memory, computed from replays; sizes in bytes, shares between 0 and 1.

The scopes are those of the vDNN paper. Feature extraction means the buffers of those layers alone: X, Y, dX, dY,
workspace, W and dW. Reductions divide it by the whole network-wide baseline (V-A, Fig. 11); the report shows whole
against whole beside it.
"""

from itertools import pairwise

from vdnnsim.analysis.layers import greediest_layer, training_bytes
from vdnnsim.analysis.memory import features_only, maximum_bytes
from vdnnsim.claims.vdnn2016.runs import ALL_TEN, Case, PaperRuns
from vdnnsim.dnn.layers import Stage
from vdnnsim.plan.training_plan import Buffer, BufferKind
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.units import GIB

VDNN_POLICIES = ("vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(m)", "vdnn_conv(p)", "vdnn_dyn")
"""What the paper means by any vDNN policy."""
PAPER_CAPACITY_BYTES = 12 * GIB
"""Memory of the paper's GPU, by which it counts the networks that need more."""


def max_memory(runs: PaperRuns, case: Case, policy: str) -> float:
    """The most GPU memory in use at once, whole network."""
    return runs.result(*case, policy).metrics.max_memory_bytes


def feature_max_memory(runs: PaperRuns, case: Case, policy: str) -> float:
    """The same of feature extraction."""
    return runs.result(*case, policy).metrics.feature_max_memory_bytes


def exceeding(runs: PaperRuns) -> tuple[Case, ...]:
    """The networks of the ten whose base(p) needs more than 12 GiB."""
    return tuple(case for case in ALL_TEN if max_memory(runs, case, "base(p)") > PAPER_CAPACITY_BYTES)


def unused_share(runs: PaperRuns, case: Case, policy: str) -> float:
    """Share of the network-wide allocation that no single layer uses (Fig. 1, right axis)."""
    bench = runs.bench(*case)
    kernels = choose_kernels(bench.workload, bench.costs, Algorithms.PERFORMANCE_OPTIMAL)
    _, need = greediest_layer(bench.workload, kernels)
    return 1 - need.total / max_memory(runs, case, policy)


def feature_share(runs: PaperRuns, case: Case, reading: str) -> float:
    """Share of memory in feature-extraction layers.

    `baseline` counts the buffers of the network-wide allocation, `without_gradients` leaves out dW; `sum_of_layers`
    adds up what each layer needs for itself: X, Y, dX, dY, W, dW and the larger of its workspaces.
    """
    if reading == "sum_of_layers":
        bench = runs.bench(*case)
        kernels = choose_kernels(bench.workload, bench.costs, Algorithms.PERFORMANCE_OPTIMAL)
        layers = [layer for layer in bench.workload.graph.layers if not layer.in_place]
        needs = [(training_bytes(bench.workload, kernels, layer).total, layer.stage) for layer in layers]
        return sum(n for n, stage in needs if stage is Stage.FEATURES) / sum(n for n, _ in needs)
    trace = runs.oracle(*case).trace
    allocated = [trace.plan.buffers[change.buffer] for change in trace.memory if change.delta_bytes > 0]
    counted = [b for b in allocated if reading == "baseline" or b.kind is not BufferKind.WEIGHT_GRADIENT]
    return sum(b.nbytes for b in counted if features_only(b)) / sum(b.nbytes for b in counted)


def fits(runs: PaperRuns, case: Case, policy: str) -> str:
    """Whether a policy trains a network on this machine: yes or no."""
    return "yes" if runs.result(*case, policy).fits else "no"


def grows(runs: PaperRuns, cases: tuple[Case, ...], policy: str) -> str:
    """Whether each network needs more memory than the one before: yes or no."""
    sizes = [max_memory(runs, case, policy) for case in cases]
    return "yes" if all(a < b for a, b in pairwise(sizes)) else "no"


def offloaded(runs: PaperRuns, case: Case, policy: str) -> float:
    """Bytes offloaded in one iteration."""
    return runs.result(*case, policy).metrics.offloaded_bytes


def max_reduction(runs: PaperRuns, case: Case, policy: str) -> float:
    """By how much the maximum of feature extraction lies below the whole baseline."""
    return 1 - feature_max_memory(runs, case, policy) / max_memory(runs, case, "base(p)")


def mean_reduction(runs: PaperRuns, case: Case, policy: str) -> float:
    """By how much the mean over layer steps of feature extraction lies below the whole baseline."""
    mean_bytes = runs.result(*case, policy).metrics.feature_step_mean_memory_bytes
    return 1 - mean_bytes / max_memory(runs, case, "base(p)")


def whole_max_reduction(runs: PaperRuns, case: Case, policy: str) -> float:
    """By how much the maximum of the whole network lies below the baseline."""
    return 1 - max_memory(runs, case, policy) / max_memory(runs, case, "base(p)")


def whole_mean_reduction(runs: PaperRuns, case: Case, policy: str) -> float:
    """By how much the mean over time of the whole network lies below the baseline."""
    return 1 - runs.result(*case, policy).metrics.mean_memory_bytes / max_memory(runs, case, "base(p)")


def best_whole_mean_reduction(runs: PaperRuns, case: Case) -> float:
    """The largest such reduction by any vDNN policy."""
    return max(whole_mean_reduction(runs, case, policy) for policy in VDNN_POLICIES)


def best_mean_reduction(runs: PaperRuns, case: Case) -> float:
    """The largest such reduction by any vDNN policy."""
    return max(mean_reduction(runs, case, policy) for policy in VDNN_POLICIES)


def gpu_memory(runs: PaperRuns, case: Case, policy: str, reading: str) -> float:
    """The most GPU memory in use at once: `whole`, or `features_weights_once`, without classifier and dW."""
    if reading == "whole":
        return max_memory(runs, case, policy)

    def counted(buffer: Buffer) -> bool:
        return features_only(buffer) and buffer.kind is not BufferKind.WEIGHT_GRADIENT

    return maximum_bytes(runs.result(*case, policy).trace, counted)


def host_share(runs: PaperRuns, case: Case, policy: str) -> float:
    """Share of pinned host memory in all memory that a policy uses, GPU memory at its maximum."""
    metrics = runs.result(*case, policy).metrics
    return metrics.host_memory_bytes / (metrics.host_memory_bytes + metrics.max_memory_bytes)
