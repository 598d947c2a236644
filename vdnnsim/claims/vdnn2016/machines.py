"""What claims ask of many machines, or of one under many readings: answered network by network, on all cores."""

from collections.abc import Callable, Sequence
from typing import Any

from vdnnsim.claims.claim import Claim, NetworkBatch
from vdnnsim.claims.row import Value
from vdnnsim.claims.vdnn2016.metrics import METRICS
from vdnnsim.claims.vdnn2016.runs import SharedPlans, VdnnRuns
from vdnnsim.engine.processes import on_all_cores
from vdnnsim.errors import PolicyError

Asked = tuple[VdnnRuns, Sequence[Claim]]


def values_on(asked: Sequence[Asked], tell: Callable[[str], object] = str) -> list[list[Value | None]]:
    """Return what each machine says to its claims, in their units; None where a policy refuses.

    A network is planned and placed once for all machines that rank its algorithms alike, and forgotten before the next.
    """
    networks = dict.fromkeys(each for _, claims in asked for claim in claims for each in METRICS.networks(claim))
    # The last are the deepest, which take longest and so begin first.
    order = list(reversed(networks))
    answers = dict(zip(order, on_all_cores(_of_network, [(each, asked) for each in order], tell), strict=True))
    return [
        [
            _together(claim, [answers[each][machine][number] for each in METRICS.networks(claim)])
            for number, claim in enumerate(claims)
        ]
        for machine, (_, claims) in enumerate(asked)
    ]


def _of_network(work: tuple[NetworkBatch, Sequence[Asked]]) -> list[dict[int, Any]]:
    """Return by machine what it says of a network to those of its claims that ask, by their position."""
    network, asked = work
    shared = SharedPlans()
    return [
        {
            number: _answer(claim, runs, network)
            for runs in [each.sharing(shared)]
            for number, claim in enumerate(claims)
            if network in METRICS.networks(claim)
        }
        for each, claims in asked
    ]


def _answer(claim: Claim, runs: VdnnRuns, network: NetworkBatch) -> Any:  # noqa: ANN401  # of its metric
    try:
        return METRICS.of_one(claim, runs, runs.server.name, network)
    except PolicyError:
        return None


def _together(claim: Claim, found: Sequence[Any]) -> Value | None:
    return None if None in found else METRICS.together(claim, found)
