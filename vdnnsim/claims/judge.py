"""Holds what a replay says against what a paper states, whatever the paper."""

import math
from collections.abc import Mapping

from vdnnsim.claims.claim import Claim
from vdnnsim.claims.row import ClaimRow, Verdict
from vdnnsim.units import GIB

Value = float | str

FACTORS: Mapping[str, float] = {
    "": 1.0,
    "times": 1.0,
    "images": 1.0,
    "images/s": 1.0,
    "GiB": float(GIB),
    "GB/s": 1e9,
    "MB/s": 1e6,
    "ms": 1e-3,
}
"""SI units in one of the units in which claims are stated."""


def judge(claim: Claim, value: Value, *, metric: str, scenario: str) -> ClaimRow:
    """Return the row of a claim.

    Args:
        claim: what the paper states.
        value: what the replay says, in the claim's unit.
        metric: what is measured, in one line.
        scenario: how to see it.
    """
    return ClaimRow(
        id=claim.id,
        where=claim.where,
        metric=metric,
        expected=_expected_text(claim),
        simulated=_text(value, claim),
        error=_error_text(claim, value),
        verdict=Verdict.REPRODUCED if is_met(claim, value) else Verdict.NOT_REPRODUCED,
        recorded=claim.recorded_verdict,
        reason=claim.reason,
        scenario=scenario,
    )


def is_met(claim: Claim, value: Value) -> bool:
    """Whether a value lies within what the claim allows."""
    if isinstance(value, str):
        return value == claim.expected
    low, high = claim.bounds()
    return low <= value <= high


def _text(value: Value, claim: Claim) -> str:
    if isinstance(value, str):
        return value
    if not claim.unit:
        return f"{value:.1%}"
    if claim.unit == "images":
        return f"{value:.0f} images"
    return f"{value:.{max(0, 2 - int(math.log10(max(1.0, abs(value)))))}f} {claim.unit}"


def _expected_text(claim: Claim) -> str:
    if isinstance(claim.expected, str):
        return claim.expected
    if claim.range is not None:
        return f"{_text(claim.range[0], claim)} to {_text(claim.range[1], claim)}"
    if claim.at_least is not None:
        return f"at least {_text(claim.at_least, claim)}"
    if claim.at_most is not None:
        return f"at most {_text(claim.at_most, claim)}"
    assert claim.expected is not None
    slack = f"{claim.points * 100:g} points" if claim.points is not None else f"{claim.tolerance or 0:.0%}"
    return f"{_text(claim.expected, claim)} within {slack}"


def _error_text(claim: Claim, value: Value) -> str:
    if isinstance(value, str) or not isinstance(claim.expected, float):
        return "" if is_met(claim, value) else "outside"
    if claim.points is not None:
        return f"{(value - claim.expected) * 100:+.1f} points"
    return f"{value / claim.expected - 1:+.1%}"
