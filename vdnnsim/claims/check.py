"""Checked claims: a number of a paper beside that of the replay, and whether it is within the tolerance."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from vdnnsim.claims.claim import Claim, NetworkBatch, Verdict, read_network
from vdnnsim.units import GIB, MIB

Runs = TypeVar("Runs")
Value = float | str
OfAll = Callable[[Sequence[NetworkBatch], Sequence[Any]], Value]

FACTORS: Mapping[str, float] = {
    **dict.fromkeys(("", "times", "images", "images/s"), 1.0),
    "million": 1e6,
    "MiB": float(MIB),
    "GiB": float(GIB),
    "GB/s": 1e9,
    "MB/s": 1e6,
    "ms": 1e-3,
}
"""SI units in one of the units of claims."""
AGGREGATES: Mapping[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "mean": ("mean", fmean),
    "min": ("least", min),
    "max": ("most", max),
}
"""Aggregates over networks: the name in a row, and the function."""
COLUMNS = ("id", "where", "metric", "expected", "simulated", "error", "verdict", "reason", "scenario")
"""Columns of `vdnnsim claims`; the terminal leaves the last one to the CSV."""


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One row of `vdnnsim claims`; a claim of several numbers has a row for each.

    Attributes:
        id: of the claim, with the name of the number after a dot: `v-vm-3.max`.
        where: section or figure of the paper.
        metric: quantity, network, batch size and policy.
        expected, simulated, error: as text with units.
        reason: why it is not met, or a remark.
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
        """Id of its claim, as v-vm-3 of v-vm-3.max."""
        return self.id.partition(".")[0]

    @property
    def is_met(self) -> bool:
        return self.verdict is Verdict.REPRODUCED

    @property
    def of_table(self) -> bool:
        """Whether it is of one of the paper's tables, and not of its text."""
        return self.id.startswith("t-")

    @property
    def cells(self) -> tuple[str, ...]:
        values = (getattr(self, name) for name in COLUMNS)
        return tuple(value.value if isinstance(value, Verdict) else value for value in values)


@dataclass(frozen=True, slots=True)
class ClaimCount:
    """How many claims of a paper's text are reproduced, each with all of its rows, and how many numbers of its tables.

    Attributes:
        claims, reproduced: of the text.
        by_construction: reproduced ones that merely return an input.
        numbers, met: of the tables.
    """

    claims: int
    reproduced: int
    by_construction: int
    numbers: int
    met: int

    @classmethod
    def of(cls, rows: Sequence[ClaimRow]) -> "ClaimCount":
        text, tables = ([row for row in rows if row.of_table is of_table] for of_table in (False, True))
        ids = {row.claim_id for row in text}
        missed = {row.claim_id for row in text if not row.is_met}
        trivial = {row.claim_id for row in text if row.reason.startswith("by construction")} - missed
        met = sum(row.is_met for row in tables)
        return cls(len(ids), len(ids) - len(missed), len(trivial), len(tables), met)

    def __str__(self) -> str:
        trivial = f", {self.by_construction} of them by construction" if self.by_construction else ""
        return f"{self.reproduced} of {self.claims} claims reproduced{trivial}"


class Metric(NamedTuple):
    """A quantity of each network of a claim.

    Attributes:
        of_one: computes it from replays, a claim with its machine, and a network with its batch size; SI or text.
        of_all: aggregates the networks; None where the claim states how.
    """

    words: str
    of_one: Callable[[Any, Claim, NetworkBatch], Any]
    of_all: OfAll | None = None


@dataclass(frozen=True)
class Metrics(Generic[Runs]):
    """The metrics of a paper by name; `seen_in` returns the scenario that shows a claim."""

    named: Mapping[str, Metric]
    seen_in: Callable[[Claim, Sequence[NetworkBatch]], str]
    groups: Mapping[str, tuple[NetworkBatch, ...]] = field(default_factory=dict)

    def check(self, claim: Claim, runs: Runs, hardware: str) -> ClaimRow:
        """Check a claim against the paper, on `hardware` unless it names its own."""
        return self.row(claim, self.simulate(claim, runs, hardware), hardware)

    def row(self, claim: Claim, value: Value, hardware: str) -> ClaimRow:
        seen_in = self.seen_in(_on(claim, hardware), self.networks(claim))
        return judge(claim, value, metric=self.describe(claim), scenario=seen_in)

    def simulate(self, claim: Claim, runs: Runs, hardware: str) -> Value:
        """Return the number of the replay, in the claim's unit."""
        metric, networks = self.named[claim.metric], self.networks(claim)
        found = [metric.of_one(runs, _on(claim, hardware), each) for each in networks]
        if metric.of_all is not None:
            return metric.of_all(networks, found)
        if claim.over is not None:
            return AGGREGATES[claim.over][1](found) / FACTORS[claim.unit]
        (value,) = found
        return value if isinstance(value, str) else float(value / FACTORS[claim.unit])

    def networks(self, claim: Claim) -> tuple[NetworkBatch, ...]:
        if isinstance(claim.networks, str):
            return self.groups[claim.networks]
        return tuple(map(read_network, claim.networks))

    def describe(self, claim: Claim) -> str:
        """Return what a row measures in one line: metric, networks, GPUs and machine if stated, policy, baseline."""
        networks = claim.networks.replace("_", " ") if isinstance(claim.networks, str) else " ".join(claim.networks)
        over = f"{AGGREGATES[claim.over][0]} of " if claim.over else ""
        gpus = f"{claim.gpus} GPUs" if claim.gpus > 1 else ""
        reading = f" ({claim.reading})" if claim.reading else ""
        policy = f"{claim.policy}{f' over {claim.baseline}' if claim.baseline else ''}{reading}"
        words = self.named[claim.metric].words
        return ", ".join(filter(None, (words, f"{over}{networks}", gpus, claim.hardware, policy)))


def _on(claim: Claim, hardware: str) -> Claim:
    return claim if claim.hardware else msgspec.structs.replace(claim, hardware=hardware)


def judge(claim: Claim, value: Value, *, metric: str, scenario: str) -> ClaimRow:
    """Return the row of a claim from a value in its unit, with the cells `metric` and `scenario`."""
    return ClaimRow(
        id=claim.id,
        where=claim.where,
        metric=metric,
        expected=_expected(claim),
        simulated=_text(value, claim),
        error=_error(claim, value),
        verdict=Verdict.REPRODUCED if is_met(claim, value) else Verdict.NOT_REPRODUCED,
        recorded=claim.recorded,
        reason=claim.reason,
        scenario=scenario,
    )


def is_met(claim: Claim, value: Value) -> bool:
    if isinstance(value, str):
        return value == claim.expected
    low, high = claim.bounds()
    return low <= value <= high


def summary(rows: Sequence[ClaimRow]) -> str:
    """Return one line: how many claims and numbers of tables are reproduced, and which rows differ from the record."""
    count = ClaimCount.of(rows)
    text = f"{count}; {count.met} of {count.numbers} numbers of its tables" if count.numbers else str(count)
    moved = [f"{row.id} ({row.verdict.value})" for row in rows if row.verdict is not row.recorded]
    return f"{text}; other than recorded: {', '.join(moved)}" if moved else text


def _text(value: Value, claim: Claim) -> str:
    if isinstance(value, str):
        return value
    if not claim.unit:
        return f"{value:.1%}"
    if claim.unit == "images":
        return f"{value:.0f} images"
    return f"{value:.{max(0, 2 - int(math.log10(max(1.0, abs(value)))))}f} {claim.unit}"


def _expected(claim: Claim) -> str:
    if claim.range is not None:
        return f"{_text(claim.range[0], claim)} to {_text(claim.range[1], claim)}"
    for words, bound in (("at least", claim.at_least), ("at most", claim.at_most)):
        if bound is not None:
            return f"{words} {_text(bound, claim)}"
    assert claim.expected is not None
    if isinstance(claim.expected, str):
        return claim.expected
    slack = f"{claim.points * 100:g} points" if claim.points is not None else f"{claim.tolerance or 0:.0%}"
    return f"{_text(claim.expected, claim)} within {slack}"


def _error(claim: Claim, value: Value) -> str:
    if isinstance(value, str) or not isinstance(claim.expected, float):
        return "" if is_met(claim, value) else "outside"
    if claim.points is not None:
        return f"{(value - claim.expected) * 100:+.1f} points"
    return f"{value / claim.expected - 1:+.1%}"
