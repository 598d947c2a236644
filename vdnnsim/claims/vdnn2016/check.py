"""Holds every row of the vDNN paper against the replay."""

from collections.abc import Callable, Mapping

from vdnnsim.analysis.dram import copy_slowdown_bound
from vdnnsim.claims.claim import Claim, NetworkBatch, read_network
from vdnnsim.claims.row import AGGREGATES, ClaimRow, Value, in_unit_of, judge
from vdnnsim.claims.vdnn2016 import metrics
from vdnnsim.claims.vdnn2016.runs import ALL_TEN, CONVENTIONAL, VERY_DEEP, VdnnRuns

_OF_ONE: Mapping[str, tuple[str, Callable[[VdnnRuns, NetworkBatch, Claim], Value]]] = {
    "page_bandwidth": ("rate of paged copies", lambda r, c, q: metrics.copy_bandwidth(r, c, q.policy)),
    "copy_bandwidth": ("rate of pinned copies", lambda r, c, q: metrics.copy_bandwidth(r, c, q.policy)),
    "max_memory": ("maximum memory", lambda r, c, q: metrics.max_memory(r, c, q.policy)),
    "unused_share": ("share that no single layer uses", lambda r, c, q: metrics.unused_share(r, c, q.policy)),
    "feature_share": ("share of feature extraction in memory", lambda r, c, q: metrics.feature_share(r, c, q.reading)),
    "fits": ("fits", lambda r, c, q: metrics.fits(r, c, q.policy)),
    "feature_max_memory": (
        "maximum memory, feature extraction",
        lambda r, c, q: metrics.feature_max_memory(r, c, q.policy),
    ),
    "offloaded": ("offloaded per iteration", lambda r, c, q: metrics.offloaded(r, c, q.policy)),
    "max_reduction": ("reduction of maximum memory", lambda r, c, q: metrics.max_reduction(r, c, q.policy)),
    "mean_reduction": ("reduction of mean memory", lambda r, c, q: metrics.mean_reduction(r, c, q.policy)),
    "best_mean_reduction": (
        "largest reduction of mean memory",
        lambda r, c, _: metrics.best_mean_reduction(r, c),
    ),
    "whole_max_reduction": (
        "reduction of maximum memory, whole network",
        lambda r, c, q: metrics.whole_max_reduction(r, c, q.policy),
    ),
    "whole_mean_reduction": (
        "reduction of mean memory over time, whole network",
        lambda r, c, q: metrics.whole_mean_reduction(r, c, q.policy),
    ),
    "best_whole_mean_reduction": (
        "largest reduction of mean memory over time, whole network",
        lambda r, c, _: metrics.best_whole_mean_reduction(r, c),
    ),
    "gpu_memory": ("maximum memory", lambda r, c, q: metrics.gpu_memory(r, c, q.policy, q.reading)),
    "host_share": ("share of CPU memory", lambda r, c, q: metrics.host_share(r, c, q.policy)),
    "feature_loss": ("performance loss", lambda r, c, q: metrics.feature_loss(r, c, q.policy)),
    "feature_throughput": ("throughput over base(p)", lambda r, c, q: metrics.feature_throughput(r, c, q.policy)),
    "reuse_distance": ("reuse distance of the first X", lambda r, c, q: metrics.reuse_distance(r, c, q.policy)),
    "conv_share": ("share of CONV in kernel time", lambda r, c, q: metrics.conv_share(r, c, q.policy)),
    "dram_slowdown": ("most that copies cost a kernel bound by DRAM", lambda r, _, __: copy_slowdown_bound(r.server)),
    "passes": ("profiling passes", lambda r, c, q: metrics.passes_of(r, c, q.policy)),
    "power_overhead": ("overhead of maximum power", lambda r, c, q: metrics.power_overhead(r, c, q.policy)),
}
"""Metrics of one network: what they are called, and how to compute them."""

_OF_SEVERAL: Mapping[str, tuple[str, Callable[[VdnnRuns, tuple[NetworkBatch, ...], Claim], Value]]] = {
    "growth": ("growth of memory", lambda r, cs, q: _growth(r, cs, q.policy)),
    "grows": ("memory grows from network to network", lambda r, cs, q: metrics.grows(r, cs, q.policy)),
    "exceeding": ("networks that need more than 12 GiB", lambda r, _, __: _names(metrics.exceeding(r))),
    "slowest": ("network that loses most", lambda r, cs, q: metrics.slowest(r, cs, q.policy)),
}
"""Metrics of several networks at once."""


def check_claim(claim: Claim, runs: VdnnRuns) -> ClaimRow:
    """Compute a claim's number and hold it against what the paper states."""
    value = simulate_claim(claim, runs)
    return judge(claim, value, metric=describe_metric(claim), scenario=_scenario(cases_of(claim, runs)))


def simulate_claim(claim: Claim, runs: VdnnRuns) -> Value:
    """Return what the replay says, in the claim's unit."""
    cases = cases_of(claim, runs)
    if claim.metric in _OF_SEVERAL:
        return _OF_SEVERAL[claim.metric][1](runs, cases, claim)
    compute = _OF_ONE[claim.metric][1]
    return in_unit_of(claim, [compute(runs, case, claim) for case in cases])


def cases_of(claim: Claim, runs: VdnnRuns) -> tuple[NetworkBatch, ...]:
    """Return the networks of a claim with their batch sizes."""
    match claim.networks:
        case "conventional":
            return CONVENTIONAL
        case "very_deep":
            return VERY_DEEP
        case "exceeding":
            return metrics.exceeding(runs)
        case "all":
            return ALL_TEN
        case names:
            assert isinstance(names, tuple), f"{claim.id}: {names} is no group of networks"
            return tuple(map(read_network, names))


def describe_metric(claim: Claim) -> str:
    """Return what a row measures in one line: metric, network, policy."""
    name = (_OF_ONE.get(claim.metric) or _OF_SEVERAL[claim.metric])[0]
    networks = claim.networks if isinstance(claim.networks, str) else " ".join(claim.networks)
    over = f"{AGGREGATES[claim.over][0]} of " if claim.over else ""
    reading = f" ({claim.reading})" if claim.reading else ""
    return f"{name}, {over}{networks.replace('_', ' ')}, {claim.policy}{reading}"


def _growth(runs: VdnnRuns, cases: tuple[NetworkBatch, ...], policy: str) -> float:
    return metrics.max_memory(runs, cases[-1], policy) / metrics.max_memory(runs, cases[0], policy)


def _names(cases: tuple[NetworkBatch, ...]) -> str:
    return " ".join(f"{network}({batch_size})" for network, batch_size in cases)


def _scenario(cases: tuple[NetworkBatch, ...]) -> str:
    if len(cases) > 1:
        return f"{len(cases)} networks"
    ((network, batch_size),) = cases
    return f"scenarios/{network}_{batch_size}.yaml" if network == "vgg16" else f"scenarios/{network}.yaml"
