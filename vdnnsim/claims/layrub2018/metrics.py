"""Metrics of the claims of Jin et al. (2018), and the pace at which some are replayed.

The pace is the time of an iteration of Caffe and MXNet on the paper's machine without a policy: in Table 5 1.3 to 120
times that of the kernels here, for LeNet under Caffe 107 ms against 1.2 ms. Copies overlap with all of it. So if the
paper states the time of the base, kernels are slowed down until the replay of the base takes as long; the time that a
policy adds is no input.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

import msgspec

from vdnnsim.claims.check import Metric, Metrics, Value
from vdnnsim.claims.claim import Claim, NetworkBatch, read_data
from vdnnsim.claims.layrub2018.runs import LayrubCase, LayrubRuns
from vdnnsim.cost.transfer import copy_s
from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.step import Role
from vdnnsim.hardware.copies import Direction
from vdnnsim.plans.operations import Compute


class Stated(msgspec.Struct, frozen=True):
    """Tables of the paper, by network and batch size as `resnet34(32)`, in the units of `tables.yaml`."""

    table_1: dict[str, tuple[int | float, float]]
    table_5: dict[str, tuple[float | None, ...]]
    table_6: dict[str, tuple[int | None, ...]]
    table_7: dict[str, tuple[int, float]]
    table_8: dict[str, float]


STATED: Final = read_data("layrub2018", "tables.yaml", Stated)


ITERATIONS: Final = 20
PASSES: Final[Mapping[tuple[str, str], int]] = {("resnet34", "caffe"): 2, ("resnet50", "caffe"): 2}
"""Passes of forward and backward in an iteration by network and base, if more than one: `iter_size` of the authors'
solvers (github.com/CGCL-codes/Layrub at 19dc3bb, models/resnet/resnet_{34,50}_solver.prototxt)."""

ONE_NODE_EPOCH_S: Final[Mapping[str, float]] = {
    "alexnet": 107 * 60.0,
    "resnet50": (53 * 60 + 16) * 60.0,
    "resnet1001": (395 * 60 + 25) * 60.0,
}
"""Table 8."""
IMAGENET_IMAGES: Final = 1_281_167

_COLUMNS: Final[Mapping[str, int]] = {"base(p)": 0, "caffe": 2}
"""Of Table 5, by base."""
_PACE_ERROR: Final = 1e-3


def at_paper_pace(
    runs: LayrubRuns, case: LayrubCase, base: str, passes: Mapping[tuple[str, str], int] = PASSES
) -> LayrubCase:
    """Return a network of Table 5 at the pace of the paper's base."""
    paper_s = STATED.table_5[f"{case.network}({case.batch_size})"][_COLUMNS[base]]
    assert paper_s is not None, f"Table 5 has no time of {case.network} under {base}"
    pass_s = paper_s / ITERATIONS / passes.get((case.network, base), 1)
    return replace(case, slowdown=pass_s / runs.iteration_s(case, base))


def one_node_iteration_s(case: LayrubCase) -> float:
    """Return the seconds of an iteration of Table 8 on one node."""
    return ONE_NODE_EPOCH_S[case.network] * case.batch_size / IMAGENET_IMAGES


def at_one_node_pace(runs: LayrubRuns, case: LayrubCase, policy: str) -> LayrubCase:
    """Return a network of Table 8 at the pace of the paper's one node.

    Copies are not slowed down, so the pace is found by the secant method, to a thousandth of the time.
    """
    wanted_s = one_node_iteration_s(case)
    before, case = case, replace(case, slowdown=case.slowdown * wanted_s / runs.iteration_s(case, policy))
    while abs((case_s := runs.iteration_s(case, policy)) / wanted_s - 1) > _PACE_ERROR:
        slope_s = (case_s - runs.iteration_s(before, policy)) / (case.slowdown - before.slowdown)
        before, case = case, replace(case, slowdown=case.slowdown + (wanted_s - case_s) / slope_s)
    return case


def parameters(runs: LayrubRuns, case: LayrubCase) -> float:
    return runs.simulator(case).workload.graph.parameters


def weight_bytes(runs: LayrubRuns, case: LayrubCase) -> float:
    return parameters(runs, case) * runs.simulator(case).workload.element_type.nbytes


def map_reduction(runs: LayrubRuns, case: LayrubCase, policy: str) -> float:
    """Reduction of activations and gradients against Caffe's blobs (5.2).

    Shared regions count once. Without offloading, normalized maps, which are no blobs, are left out on both sides.
    """
    inside = runs.inside_bytes(case) if policy == "layrub_intra" else 0
    return 1 - (runs.maps_bytes(case, policy) - inside) / runs.blob_bytes(case)


def runtime_reduction(runs: LayrubRuns, case: LayrubCase, policy: str, baseline: str) -> float:
    """Reduction of process memory against another policy (5.3.1)."""
    return 1 - runs.memory(case, policy).runtime / runs.memory(case, baseline).runtime


def overhead(runs: LayrubRuns, case: LayrubCase, policy: str, baseline: str, *, paper_pace: bool = False) -> float:
    """Extra time of an iteration, at the paper's pace (Table 5) or that of the kernels here."""
    case = at_paper_pace(runs, case, baseline) if paper_pace else case
    return runs.iteration_s(case, policy) / runs.iteration_s(case, baseline) - 1


def record_share(runs: LayrubRuns, case: LayrubCase, policy: str) -> float:
    """Bytes of the records of rectifiers over those of their maps (4.2)."""
    plan = runs.plan(case, policy)
    layers = plan.workload.graph.layers
    records = {
        operand.memory: layers[each.layer].output
        for each in plan.operations
        if isinstance(each, Compute) and isinstance(layers[each.layer].operator, Activation)
        for operand in each.operands
        if operand.role is Role.STATISTICS
    }
    maps_bytes = sum(plan.workload.map_bytes(index) for index in records.values())
    return sum(plan.buffers[buffer].nbytes for buffer in records) / maps_bytes


def barrier_share(runs: LayrubRuns, case: LayrubCase, policy: str) -> float:
    """Time lost by barriers over the time of the kernels of backward that they separate (4.3)."""
    costs = runs.simulator(case).costs
    kernels = [each for each in runs.plan(case, policy).operations if isinstance(each, Compute)]
    separated = {each.layer for each in kernels if each.barrier_s}
    phases = (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS)
    seconds = [
        costs.find(each.layer, each.phase, each.algorithm).seconds
        for each in kernels
        if each.layer in separated and each.phase in phases
    ]
    return sum(each.barrier_s for each in kernels) / sum(seconds)


def migration_speedup(runs: LayrubRuns, case: LayrubCase, policy: str) -> float:
    """Time to recompute Y over the time to prefetch it, mean over CONV and FC layers (6)."""
    simulator = runs.simulator(case)
    forward = [
        each for each in runs.plan(case, policy).operations if isinstance(each, Compute) and each.phase is Phase.FORWARD
    ]
    ratios = []
    for each in forward:
        layer = simulator.workload.graph.layers[each.layer]
        if layer.kind in (LayerKind.CONV, LayerKind.FC):
            load_s = copy_s(simulator.server.link, Direction.H2D, simulator.workload.map_bytes(layer.output))
            ratios.append(simulator.costs.find(each.layer, each.phase, each.algorithm).seconds / load_s)
    return fmean(ratios)


def two_nodes_speedup(runs: LayrubRuns, case: LayrubCase, policy: str, *, paper_pace: bool) -> float:
    """Images per second of two nodes over one (Table 8), on a machine of two nodes.

    Each layer's weight gradients are reduced in a ring of two over the network as soon as they are computed: each node
    sends and receives the bytes of dW.
    """
    case = at_one_node_pace(runs, case, policy) if paper_pace else case
    return 2 * runs.iteration_s(case, policy) / runs.iteration_s(replace(case, gpus=2), policy)


def epoch_change(runs: LayrubRuns, case: LayrubCase, batch_size: int, policy: str) -> float:
    """Relative change of the time of an epoch from another batch size (Table 7)."""
    other = LayrubCase(case.hardware, case.network, batch_size)
    per_image_s = runs.iteration_s(case, policy) / case.batch_size
    return per_image_s / (runs.iteration_s(other, policy) / batch_size) - 1


def _metric(words: str, compute: Callable[[LayrubRuns, LayrubCase, Claim], Value]) -> Metric:
    return Metric(words, lambda runs, claim, case: compute(runs, LayrubCase(claim.hardware, *case), claim))


_NAMED: Final[Mapping[str, Metric]] = {
    "parameters": _metric("weights", lambda r, c, _: parameters(r, c)),
    "weight_bytes": _metric("weights", lambda r, c, _: weight_bytes(r, c)),
    "intermediate": _metric("data and diffs of all blobs", lambda r, c, _: r.blob_bytes(c)),
    "map_memory": _metric("activations and gradients", lambda r, c, q: r.maps_bytes(c, q.policy)),
    "map_reduction": _metric("reduction of activations and gradients", lambda r, c, q: map_reduction(r, c, q.policy)),
    "runtime_memory": _metric("runtime memory", lambda r, c, q: r.memory(c, q.policy).runtime),
    "runtime_reduction": _metric(
        "reduction of runtime memory", lambda r, c, q: runtime_reduction(r, c, q.policy, q.baseline)
    ),
    "fits": _metric("fits", lambda r, c, q: "yes" if r.memory(c, q.policy).fits else "no"),
    "overhead": _metric(
        "extra time", lambda r, c, q: overhead(r, c, q.policy, q.baseline, paper_pace=q.reading == "paper_pace")
    ),
    "performance": _metric("performance", lambda r, c, q: 1 / (1 + overhead(r, c, q.policy, q.baseline))),
    "record_share": _metric("records of rectifiers over their maps", lambda r, c, q: record_share(r, c, q.policy)),
    "barrier_share": _metric("cost of barriers", lambda r, c, q: barrier_share(r, c, q.policy)),
    "migration_speedup": _metric(
        "time of recomputation over time of migration", lambda r, c, q: migration_speedup(r, c, q.policy)
    ),
    "two_nodes_speedup": _metric(
        "speedup of two nodes", lambda r, c, q: two_nodes_speedup(r, c, q.policy, paper_pace=q.reading == "paper_pace")
    ),
    "largest_batch": _metric("largest batch", lambda r, c, q: r.largest(c, q.policy).batch_size),
    "epoch_change": _metric(
        "change of epoch time with the batch", lambda r, c, q: epoch_change(r, c, int(q.reading), q.policy)
    ),
}


def _seen_in(claim: Claim, cases: Sequence[NetworkBatch]) -> str:
    network = "" if len(cases) > 1 else f" of {claim.networks[0]}"
    return f"{claim.policy}{network} on {claim.hardware}"


METRICS: Final = Metrics[LayrubRuns](_NAMED, _seen_in)
