"""Holds every row of Kim et al. (2018) against the replay: largest batches, images per second, their ratios."""

from collections.abc import Callable, Mapping

from vdnnsim.claims.claim import Claim, read_network
from vdnnsim.claims.row import ClaimRow, judge
from vdnnsim.claims.swap2018.runs import ServerRuns
from vdnnsim.claims.swap2018.stated import Place

_METRICS: Mapping[str, tuple[str, Callable[[ServerRuns, Place, Claim], float]]] = {
    "largest_batch": ("largest batch", lambda r, p, q: r.largest(p, network_of(q), q.policy).batch_size),
    "largest_batch_throughput": (
        "throughput at the largest batch",
        lambda r, p, q: r.largest_images_per_s(p, network_of(q), q.policy),
    ),
    "largest_batch_ratio": (
        "largest batch",
        lambda r, p, q: (
            r.largest(p, network_of(q), q.policy).batch_size / r.largest(p, network_of(q), q.baseline).batch_size
        ),
    ),
    "throughput_ratio": (
        "throughput",
        lambda r, p, q: (
            r.iteration_s(p, network_of(q), batch_of(q), q.baseline)
            / r.iteration_s(p, network_of(q), batch_of(q), q.policy)
        ),
    ),
}


def check_claim(claim: Claim, runs: ServerRuns, hardware: str) -> ClaimRow:
    """Compute a claim's number and hold it against what the paper states; `hardware` unless it names its own."""
    place = Place(claim.hardware or hardware, claim.gpus)
    value = _METRICS[claim.metric][1](runs, place, claim)
    return judge(claim, float(value), metric=describe_metric(claim), scenario=_scenario(place))


def describe_metric(claim: Claim) -> str:
    """Return what a row measures in one line: metric, network, GPUs, policy, and the one that it is over."""
    name = _METRICS[claim.metric][0]
    gpus = "1 GPU" if claim.gpus == 1 else f"{claim.gpus} GPUs"
    over = f" over {claim.baseline}" if claim.baseline else ""
    return f"{name}, {' '.join(claim.networks)}, {gpus}, {claim.policy}{over}"


def network_of(claim: Claim) -> str:
    """The network of a claim."""
    return claim.networks[0].partition("(")[0]


def batch_of(claim: Claim) -> int:
    """Its batch size."""
    return read_network(claim.networks[0])[1]


def _scenario(place: Place) -> str:
    return f"scenarios/swap2018_{place.gpus}gpus.yaml" if place.gpus > 1 else "scenarios/swap2018_1gpu.yaml"
