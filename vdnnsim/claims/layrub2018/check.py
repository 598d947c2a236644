"""Holds every row of Jin et al. (2018) against the replay."""

from collections.abc import Callable, Mapping

from vdnnsim.claims.claim import Claim, read_network
from vdnnsim.claims.layrub2018 import metrics
from vdnnsim.claims.layrub2018.runs import LayrubCase, LayrubRuns
from vdnnsim.claims.row import AGGREGATES, ClaimRow, Value, in_unit_of, judge

_METRICS: Mapping[str, tuple[str, Callable[[LayrubRuns, LayrubCase, Claim], Value]]] = {
    "parameters": ("weights", lambda r, c, _: metrics.parameters(r, c)),
    "weight_bytes": ("weights", lambda r, c, _: metrics.weight_bytes(r, c)),
    "intermediate": ("data and diffs of all blobs", lambda r, c, _: r.blob_bytes(c)),
    "map_memory": ("activations and gradients", lambda r, c, q: r.maps_bytes(c, q.policy)),
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


def check_claim(claim: Claim, runs: LayrubRuns, hardware: str) -> ClaimRow:
    """Compute a claim's number and hold it against what the paper states; `hardware` unless it names its own."""
    value = simulate_claim(claim, runs, hardware)
    network = "" if len(claim.networks) > 1 else f" of {claim.networks[0]}"
    scenario = f"{claim.policy}{network} on {claim.hardware or hardware}"
    return judge(claim, value, metric=describe_metric(claim), scenario=scenario)


def simulate_claim(claim: Claim, runs: LayrubRuns, hardware: str) -> Value:
    """Return what the replay says, in the claim's unit."""
    compute = _METRICS[claim.metric][1]
    return in_unit_of(claim, [compute(runs, case, claim) for case in cases_of(claim, hardware)])


def cases_of(claim: Claim, hardware: str) -> tuple[LayrubCase, ...]:
    """Return the networks of a claim with their batch sizes, on its machine."""
    return tuple(LayrubCase(claim.hardware or hardware, *read_network(name)) for name in claim.networks)


def describe_metric(claim: Claim) -> str:
    """Return what a row measures in one line: metric, networks, machine if not the file's, policy, baseline."""
    aggregate = f"{AGGREGATES[claim.over][0]} of " if claim.over else ""
    machine = f", {claim.hardware}" if claim.hardware else ""
    over = f" over {claim.baseline}" if claim.baseline else ""
    reading = f" ({claim.reading})" if claim.reading else ""
    networks = " ".join(claim.networks)
    return f"{_METRICS[claim.metric][0]}, {aggregate}{networks}{machine}, {claim.policy}{over}{reading}"
