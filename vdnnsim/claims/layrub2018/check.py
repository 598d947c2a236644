"""Holds every row of Jin et al. (2018) against the replay."""

from collections.abc import Callable, Mapping
from statistics import fmean

from vdnnsim.claims.claim import Claim
from vdnnsim.claims.judge import Value, judge
from vdnnsim.claims.layrub2018 import metrics
from vdnnsim.claims.layrub2018.runs import Case, LayrubRuns
from vdnnsim.claims.row import ClaimRow
from vdnnsim.units import GIB, MIB

_METRICS: Mapping[str, tuple[str, Callable[[LayrubRuns, Case, Claim], Value]]] = {
    "parameters": ("weights", lambda r, c, _: metrics.parameters(r, c)),
    "weight_bytes": ("weights", lambda r, c, _: metrics.weight_bytes(r, c)),
    "intermediate": ("data and diffs of all blobs", lambda r, c, _: r.blob_bytes(c)),
    "map_memory": ("activations and gradients", lambda r, c, q: r.memory(c, q.policy).maps),
    "map_reduction": (
        "reduction of activations and gradients",
        lambda r, c, q: metrics.map_reduction(r, c, q.policy),
    ),
    "runtime_memory": ("runtime memory", lambda r, c, q: r.memory(c, q.policy).runtime),
    "runtime_reduction": (
        "reduction of runtime memory",
        lambda r, c, q: metrics.runtime_reduction(r, c, q.policy, q.baseline),
    ),
    "fits": ("fits", lambda r, c, q: "yes" if r.memory(c, q.policy).fits else "no"),
    "overhead": (
        "extra time",
        lambda r, c, q: metrics.overhead(r, c, q.policy, q.baseline, paper_pace=q.reading == "paper_pace"),
    ),
    "performance": (
        "performance",
        lambda r, c, q: 1 / (1 + metrics.overhead(r, c, q.policy, q.baseline)),
    ),
    "record_share": ("records of rectifiers over their maps", lambda r, c, q: metrics.record_share(r, c, q.policy)),
    "barrier_share": ("cost of barriers", lambda r, c, q: metrics.barrier_share(r, c, q.policy)),
    "migration_speedup": (
        "time of recomputation over time of migration",
        lambda r, c, q: metrics.migration_speedup(r, c, q.policy),
    ),
    "two_nodes_speedup": (
        "speedup of two nodes",
        lambda r, c, q: metrics.two_nodes_speedup(r, c, q.policy, paper_pace=q.reading == "paper_pace"),
    ),
    "largest_batch": ("largest batch", lambda r, c, q: r.largest(c, q.policy).batch_size),
    "epoch_change": (
        "change of epoch time with the batch",
        lambda r, c, q: metrics.epoch_change(r, c, int(q.reading), q.policy),
    ),
}
_FACTORS: Mapping[str, float] = {"": 1, "times": 1, "images": 1, "million": 1e6, "MiB": MIB, "GiB": GIB}
_AGGREGATES: Mapping[str, tuple[str, Callable[[list[float]], float]]] = {
    "mean": ("mean", fmean),
    "min": ("least", min),
    "max": ("most", max),
}


def check_claim(claim: Claim, runs: LayrubRuns, hardware: str) -> ClaimRow:
    """Compute a claim's number and hold it against what the paper states; `hardware` unless it names its own."""
    value = simulate_claim(claim, runs, hardware)
    network = "" if len(claim.networks) > 1 else f" of {claim.networks[0]}"
    scenario = f"{claim.policy}{network} on {claim.hardware or hardware}"
    return judge(claim, value, metric=describe_metric(claim), scenario=scenario)


def simulate_claim(claim: Claim, runs: LayrubRuns, hardware: str) -> Value:
    """Return what the replay says, in the claim's unit."""
    compute = _METRICS[claim.metric][1]
    values = [compute(runs, case, claim) for case in cases_of(claim, hardware)]
    numbers = [value for value in values if not isinstance(value, str)]
    if not numbers:
        (answer,) = values
        return answer
    aggregate = _AGGREGATES[claim.over][1] if claim.over else _only
    return aggregate(numbers) / _FACTORS[claim.unit]


def cases_of(claim: Claim, hardware: str) -> tuple[Case, ...]:
    """Return the networks of a claim with their batch sizes, on its machine."""
    names = (name.rstrip(")").partition("(") for name in claim.networks)
    return tuple(Case(claim.hardware or hardware, network, int(batch_size)) for network, _, batch_size in names)


def describe_metric(claim: Claim) -> str:
    """Return what a row measures in one line: metric, networks, machine if not the file's, policy, baseline."""
    aggregate = f"{_AGGREGATES[claim.over][0]} of " if claim.over else ""
    machine = f", {claim.hardware}" if claim.hardware else ""
    over = f" over {claim.baseline}" if claim.baseline else ""
    reading = f" ({claim.reading})" if claim.reading else ""
    networks = " ".join(claim.networks)
    return f"{_METRICS[claim.metric][0]}, {aggregate}{networks}{machine}, {claim.policy}{over}{reading}"


def _only(values: list[float]) -> float:
    (value,) = values
    return value
