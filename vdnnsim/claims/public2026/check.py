"""Claims of the scoreboard: the aim of each series of measurements, checked on the rows that count."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Final

from vdnnsim.claims.check import ClaimRow, judge
from vdnnsim.claims.claim import Claim
from vdnnsim.claims.public2026.measurements import Setup
from vdnnsim.claims.public2026.scoreboard import AnyHeld, Scoreboard, errors_of

_METRICS: Final[Mapping[str, tuple[str, str, str]]] = {
    "step_time_error": ("mean absolute error of step time", "step_times", "mean_absolute"),
    "step_time_bias": ("mean error of step time", "step_times", "mean"),
    "operator_error": ("largest error of a kind of operators", "operator_times", "largest"),
    "largest_batch": ("largest batch in its bracket", "largest_batches", ""),
    "memory_error": ("median absolute error of peak memory", "peaks", "median_absolute"),
    "memory_under": ("peaks under-estimated by more than 2 %", "peaks", "share_under"),
}
"""By name: words, rows of the scoreboard, and the attribute of their errors; of batches the share in their brackets."""


def check_claim(claim: Claim, board: Scoreboard, hardware: str) -> ClaimRow:
    """Check an aim, on `hardware` unless it names its own.

    Without captures the number is of other rows than the recorded one, so the record is kept.
    """
    text, rows_name, error = _METRICS[claim.metric]
    card = claim.hardware or hardware
    rows = [each for each in getattr(board, rows_name) if _is_of(each, claim, card)]
    counted = [each for each in rows if each.counts]
    metric = f"{text}: {claim.networks}, {card}{', ' * bool(claim.reading)}{claim.reading}"
    if not counted:
        reasons = _most_frequent([each.left_out or "a parameter was fitted on it" for each in rows])
        row = judge(claim, float("nan"), metric=metric, scenario="")
        return replace(row, simulated="no row", error="", recorded=row.verdict, reason=f"no row counts: {reasons}")
    number = getattr(errors_of(counted), error) if error else fmean(each.simulated.in_bracket for each in counted)
    row = judge(claim, number, metric=f"{metric}; {len(counted)} of {len(rows)} rows", scenario="")
    return row if board.runs.capture is not None else replace(row, recorded=row.verdict)


def _is_of(held: AnyHeld, claim: Claim, card: str) -> bool:
    setup: Setup = held.row.setup
    said = {setup.mode.value, setup.precision.value}
    return held.row.series == claim.networks and held.row.hardware == card and set(claim.reading.split()) <= said


def _most_frequent(reasons: Iterable[str]) -> str:
    found = list(reasons)
    return max(found, key=found.count) if found else "there is none of this card"
