"""Claims of Kim et al. (2018) under other readings."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final

from reports.readings import ReadingRows, on_all_cores, read_readings
from vdnnsim.claims.check import ClaimRow
from vdnnsim.claims.claim import Claim, read_network
from vdnnsim.claims.swap2018.runs import METRICS, ServerRuns, SwapReading
from vdnnsim.errors import PolicyError

READINGS: Final = read_readings("swap2018", SwapReading)
"""The alternatives, in the order of the report."""


def compare_readings(
    claims: Sequence[Claim],
    runs: ServerRuns,
    hardware: str,
    readings: Sequence[SwapReading] = READINGS,
    progress: Callable[[str], object] = str,
) -> tuple[ReadingRows[SwapReading], ...]:
    """Check every claim under every reading."""
    # Claims of one network on one machine go together: what a reading does not change of it is replayed once.
    groups: dict[Hashable, list[Claim]] = {}
    for claim in claims:
        groups.setdefault((claim.hardware, read_network(claim.networks[0])[0]), []).append(claim)
    ask = partial(_rows, ServerRuns(runs.machines), hardware, tuple(readings))
    # The last are those on four GPUs, which take longest and so begin first.
    answers = on_all_cores(ask, list(reversed(groups.values())), progress)
    found = {row: rows for of_group in answers for row, rows in of_group.items()}
    return tuple(
        ReadingRows(each, tuple(found[claim.id][number] for claim in claims)) for number, each in enumerate(readings)
    )


def _rows(
    fresh: ServerRuns, hardware: str, readings: Sequence[SwapReading], claims: Sequence[Claim]
) -> dict[str, list[ClaimRow | None]]:
    """Return by claim its row under each reading; None where a policy refuses."""
    under = [fresh.under(reading) for reading in readings]
    return {claim.id: [_row(claim, runs, hardware) for runs in under] for claim in claims}


def _row(claim: Claim, runs: ServerRuns, hardware: str) -> ClaimRow | None:
    try:
        return METRICS.check(claim, runs, hardware)
    except PolicyError:
        return None
