"""Holds every row of the vDNN paper against the replay.

A claim asks questions of single networks, and makes one number of what they answer. So whoever has many machines to ask
about may ask network by network, and keep the answers alone.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from vdnnsim.analysis.dram import copy_slowdown_bound
from vdnnsim.claims.claim import Claim, NetworkBatch, read_network
from vdnnsim.claims.row import AGGREGATES, ClaimRow, Value, in_unit_of, judge
from vdnnsim.claims.vdnn2016 import metrics
from vdnnsim.claims.vdnn2016.runs import ALL_TEN, CONVENTIONAL, VERY_DEEP, VdnnRuns


class Question(NamedTuple):
    """What is asked of one network."""

    metric: str
    policy: str
    reading: str = ""


Answer = Value | tuple[float, str]
Answers = Callable[[NetworkBatch, Question], Answer]
"""What replays say of a network."""

_Compute = Callable[[VdnnRuns, NetworkBatch, Question], Answer]


def _of_policy(compute: Callable[[VdnnRuns, NetworkBatch, str], Answer]) -> _Compute:
    return lambda runs, case, asked: compute(runs, case, asked.policy)


_OF_ONE: Final[Mapping[str, tuple[str, _Compute]]] = {
    "page_bandwidth": ("rate of paged copies", _of_policy(metrics.copy_bandwidth)),
    "copy_bandwidth": ("rate of pinned copies", _of_policy(metrics.copy_bandwidth)),
    "max_memory": ("maximum memory", _of_policy(metrics.max_memory)),
    "unused_share": ("share that no single layer uses", _of_policy(metrics.unused_share)),
    "fits": ("fits", _of_policy(metrics.fits)),
    "feature_max_memory": ("maximum memory, feature extraction", _of_policy(metrics.feature_max_memory)),
    "offloaded": ("offloaded per iteration", _of_policy(metrics.offloaded)),
    "max_reduction": ("reduction of maximum memory", _of_policy(metrics.max_reduction)),
    "mean_reduction": ("reduction of mean memory", _of_policy(metrics.mean_reduction)),
    "best_mean_reduction": ("largest reduction of mean memory", _of_policy(metrics.best_mean_reduction)),
    "whole_max_reduction": ("reduction of maximum memory, whole network", _of_policy(metrics.whole_max_reduction)),
    "whole_mean_reduction": (
        "reduction of mean memory over time, whole network",
        _of_policy(metrics.whole_mean_reduction),
    ),
    "best_whole_mean_reduction": (
        "largest reduction of mean memory over time, whole network",
        _of_policy(metrics.best_whole_mean_reduction),
    ),
    "host_share": ("share of CPU memory", _of_policy(metrics.host_share)),
    "feature_loss": ("performance loss", _of_policy(metrics.feature_loss)),
    "feature_throughput": ("throughput over base(p)", _of_policy(metrics.feature_throughput)),
    "speed_and_algorithms": (
        "throughput over base(p), and what a policy settled on",
        _of_policy(metrics.speed_and_algorithms),
    ),
    "reuse_distance": ("reuse distance of the first X", _of_policy(metrics.reuse_distance)),
    "conv_share": ("share of CONV in kernel time", _of_policy(metrics.conv_share)),
    "passes": ("profiling passes", _of_policy(metrics.passes_of)),
    "power_overhead": ("overhead of maximum power", _of_policy(metrics.power_overhead)),
    "feature_share": (
        "share of feature extraction in memory",
        lambda runs, case, asked: metrics.feature_share(runs, case, asked.reading),
    ),
    "gpu_memory": ("maximum memory", lambda runs, case, asked: metrics.gpu_memory(runs, case, *asked[1:])),
    "dram_slowdown": (
        "most that copies cost a kernel bound by DRAM",
        lambda runs, _case, _asked: copy_slowdown_bound(runs.server),
    ),
}
"""Metrics of one network: what they are called, and how to compute them."""

_OF_SEVERAL: Final[Mapping[str, tuple[str, str, Callable[[Sequence[NetworkBatch], Sequence[Any]], Value]]]] = {
    "growth": ("growth of memory", "max_memory", lambda _, sizes: sizes[-1] / sizes[0]),
    "grows": (
        "memory grows from network to network",
        "max_memory",
        lambda _, sizes: "yes" if all(a < b for a, b in pairwise(sizes)) else "no",
    ),
    "exceeding": (
        "networks that need more than 12 GiB",
        "max_memory",
        lambda cases, sizes: " ".join(map(_name, _exceeding(cases, sizes))),
    ),
    "slowest": (
        "network that loses most",
        "speed_and_algorithms",
        lambda cases, found: " under ".join(_slowest(cases, found)[1:]),
    ),
}
"""Metrics of several networks at once: what they are called, what is asked of each, and what is made of that."""

_MEMORY: Final = Question("max_memory", "base(p)")


def answers_of(runs: VdnnRuns) -> Answers:
    """Return the answers of replays."""
    return lambda case, asked: _OF_ONE[asked.metric][1](runs, case, asked)


def questions_of(claim: Claim) -> Mapping[NetworkBatch, Sequence[Question]]:
    """Return what checking a claim may ask, by network."""
    asked = (_question(claim), _MEMORY) if claim.networks == "exceeding" else (_question(claim),)
    return dict.fromkeys(_group(claim), asked)


def check_claim(claim: Claim, answers: Answers) -> ClaimRow:
    """Compute a claim's number and hold it against what the paper states."""
    value = simulate_claim(claim, answers)
    return judge(claim, value, metric=describe_metric(claim), scenario=_scenario(cases_of(claim, answers)))


def simulate_claim(claim: Claim, answers: Answers) -> Value:
    """Return what the replay says, in the claim's unit."""
    cases = cases_of(claim, answers)
    found: list[Any] = [answers(case, _question(claim)) for case in cases]
    if claim.metric in _OF_SEVERAL:
        return _OF_SEVERAL[claim.metric][2](cases, found)
    return in_unit_of(claim, found)


def cases_of(claim: Claim, answers: Answers) -> tuple[NetworkBatch, ...]:
    """Return the networks of a claim with their batch sizes."""
    cases = _group(claim)
    if claim.networks == "exceeding":
        return _exceeding(cases, [answers(case, _MEMORY) for case in cases])
    return cases


def _question(claim: Claim) -> Question:
    metric = _OF_SEVERAL[claim.metric][1] if claim.metric in _OF_SEVERAL else claim.metric
    return Question(metric, claim.policy, claim.reading)


def _group(claim: Claim) -> tuple[NetworkBatch, ...]:
    match claim.networks:
        case "conventional":
            return CONVENTIONAL
        case "very_deep":
            return VERY_DEEP
        case "all" | "exceeding":
            return ALL_TEN
        case names:
            assert isinstance(names, tuple), f"{claim.id}: {names} is no group of networks"
            return tuple(map(read_network, names))


def _exceeding(cases: Sequence[NetworkBatch], sizes: Sequence[Any]) -> tuple[NetworkBatch, ...]:
    return tuple(case for case, size in zip(cases, sizes, strict=True) if size > metrics.PAPER_CAPACITY_BYTES)


def _slowest(cases: Sequence[NetworkBatch], found: Sequence[tuple[float, str]]) -> tuple[float, str, str]:
    return min((speed, _name(case), algorithms) for case, (speed, algorithms) in zip(cases, found, strict=True))


def _name(case: NetworkBatch) -> str:
    return f"{case[0]}({case[1]})"


def describe_metric(claim: Claim) -> str:
    """Return what a row measures in one line: metric, network, policy."""
    name = (_OF_ONE.get(claim.metric) or _OF_SEVERAL[claim.metric])[0]
    networks = claim.networks if isinstance(claim.networks, str) else " ".join(claim.networks)
    over = f"{AGGREGATES[claim.over][0]} of " if claim.over else ""
    reading = f" ({claim.reading})" if claim.reading else ""
    return f"{name}, {over}{networks.replace('_', ' ')}, {claim.policy}{reading}"


def _scenario(cases: tuple[NetworkBatch, ...]) -> str:
    if len(cases) > 1:
        return f"{len(cases)} networks"
    ((network, batch_size),) = cases
    return f"scenarios/{network}_{batch_size}.yaml" if network == "vgg16" else f"scenarios/{network}.yaml"
