"""The checked numbers of a paper: what a replay says, held against what the paper states, whatever the paper."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from vdnnsim.claims.claim import Claim, Verdict
from vdnnsim.units import GIB, MIB

Value = float | str

FACTORS: Mapping[str, float] = {
    "": 1.0,
    "times": 1.0,
    "images": 1.0,
    "images/s": 1.0,
    "million": 1e6,
    "MiB": float(MIB),
    "GiB": float(GIB),
    "GB/s": 1e9,
    "MB/s": 1e6,
    "ms": 1e-3,
}
"""SI units in one of the units in which claims are stated."""
AGGREGATES: Mapping[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "mean": ("mean", fmean),
    "min": ("least", min),
    "max": ("most", max),
}
"""How several networks become one number: what it is called, and how to compute it."""
COLUMNS = ("id", "where", "metric", "expected", "simulated", "error", "verdict", "reason", "scenario")
"""Columns of `vdnnsim claims`; the terminal leaves the last one to the CSV."""


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One row of `vdnnsim claims`; a claim of several numbers has a row for each.

    Attributes:
        id: of the claim, with the name of the number behind a dot: `v-vm-3.max`.
        where: section or figure of the paper.
        metric: what is measured, on which network, batch size and policy.
        expected, simulated, error: as text with units.
        verdict, recorded: what came out, and what the claims file records.
        reason: why it is not met, or what a reader should know of it; empty where nothing is.
        scenario: how to see it: a command or a scenario file.
    """

    id: str
    where: str
    metric: str
    expected: str
    simulated: str
    error: str
    verdict: Verdict
    recorded: Verdict
    reason: str
    scenario: str

    @property
    def claim_id(self) -> str:
        """Id of the claim that this row belongs to, as v-vm-3 of v-vm-3.max."""
        return self.id.partition(".")[0]

    @property
    def is_met(self) -> bool:
        """Whether it comes out."""
        return self.verdict is Verdict.REPRODUCED

    @property
    def of_table(self) -> bool:
        """Whether it is a number of one of the paper's tables, and not of its text."""
        return self.id.startswith("t-")

    @property
    def by_construction(self) -> bool:
        """Whether the row merely returns an input, and says so in its reason."""
        return self.reason.startswith("by construction")


@dataclass(frozen=True, slots=True)
class ClaimCount:
    """How much of a paper comes out: claims of its text, each with all of its rows, and numbers of its tables apart.

    Attributes:
        claims, reproduced: of the text.
        by_construction: how many of the reproduced ones merely return an input.
        numbers, met: of the tables.
    """

    claims: int
    reproduced: int
    by_construction: int
    numbers: int
    met: int

    @classmethod
    def of(cls, rows: Sequence[ClaimRow]) -> "ClaimCount":
        """Count the claims that some rows belong to."""
        text, tables = ([row for row in rows if row.of_table is of_table] for of_table in (False, True))
        ids = {row.claim_id for row in text}
        missed = {row.claim_id for row in text if not row.is_met}
        trivial = {row.claim_id for row in text if row.by_construction} - missed
        met = sum(row.is_met for row in tables)
        return cls(len(ids), len(ids) - len(missed), len(trivial), len(tables), met)

    def __str__(self) -> str:
        """`34 of 35 claims reproduced, 4 of them by construction`: those of the text."""
        trivial = f", {self.by_construction} of them by construction" if self.by_construction else ""
        return f"{self.reproduced} of {self.claims} claims reproduced{trivial}"


def in_unit_of(claim: Claim, values: Sequence[Value]) -> Value:
    """Return what the networks of a claim have as one value, in the claim's unit."""
    if claim.over is None:
        (value,) = values
        return value if isinstance(value, str) else value / FACTORS[claim.unit]
    numbers = [value for value in values if not isinstance(value, str)]
    return AGGREGATES[claim.over][1](numbers) / FACTORS[claim.unit]


def judge(claim: Claim, value: Value, *, metric: str, scenario: str) -> ClaimRow:
    """Return the row of a claim from a value in its unit, what is measured in one line, and how to see it."""
    return ClaimRow(
        id=claim.id,
        where=claim.where,
        metric=metric,
        expected=_expected_text(claim),
        simulated=_text(value, claim),
        error=_error_text(claim, value),
        verdict=Verdict.REPRODUCED if is_met(claim, value) else Verdict.NOT_REPRODUCED,
        recorded=claim.recorded,
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


def cells(row: ClaimRow) -> tuple[str, ...]:
    """One row in the order of the columns."""
    verdict = row.verdict.value
    return row.id, row.where, row.metric, row.expected, row.simulated, row.error, verdict, row.reason, row.scenario


def summary(rows: Sequence[ClaimRow]) -> str:
    """Return one line: how many claims and numbers of tables come out, and which rows differ from what is recorded."""
    count = ClaimCount.of(rows)
    text = f"{count}; {count.met} of {count.numbers} numbers of its tables" if count.numbers else str(count)
    moved = [row for row in rows if row.verdict is not row.recorded]
    if moved:
        text += "; other than recorded: " + ", ".join(f"{row.id} ({row.verdict.value})" for row in moved)
    return text
