"""The scoreboard: published measurements beside their replays, with errors or why there is no replay, and its claims.

A claim is the aim of a series of measurements, checked on the rows that count.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, Generic, TypeVar

from vdnnsim.claims.check import ClaimRow, judge
from vdnnsim.claims.claim import Claim
from vdnnsim.claims.public2026.fitted import FittedRows
from vdnnsim.claims.public2026.measurements import (
    SERIES,
    AnyRow,
    OperatorTime,
    PeakMemory,
    Setup,
    StepTime,
    asked_batches,
    operator_times,
    peak_memory,
    step_times,
)
from vdnnsim.claims.public2026.replays import Capture, Fit, LeftOutError, PublicRuns
from vdnnsim.hardware.server import Server

Row = TypeVar("Row", StepTime, OperatorTime, PeakMemory)
Simulated = TypeVar("Simulated")

UNDER: Final = -0.02
"""Error of an estimate of memory below which a run would fail."""


@dataclass(frozen=True, slots=True)
class Held(Generic[Row, Simulated]):
    """A row with its replay.

    Attributes:
        simulated: None if it is left out.
        left_out: why; empty if it is not.
        fitted: whether a parameter of the machine was fitted to it.
    """

    row: Row
    simulated: Simulated | None
    left_out: str
    fitted: bool

    @property
    def counts(self) -> bool:
        return self.simulated is not None and not self.fitted

    @property
    def error(self) -> float:
        assert isinstance(self.simulated, float | int), "only numbers have an error"
        return self.simulated / self.row.measured - 1

    @property
    def error_ratio(self) -> float | None:
        return None if self.simulated is None else self.error


AnyHeld = Held[Any, Any]
TimeRow = Held[StepTime, float]
OperatorRow = Held[OperatorTime, float]
MemoryRow = Held[PeakMemory, int]
BatchRow = Held[StepTime, Fit]


@dataclass(frozen=True, slots=True)
class Errors:
    """Statistics of one or more relative errors."""

    values: tuple[float, ...]

    @property
    def mean_absolute(self) -> float:
        return fmean(abs(each) for each in self.values)

    @property
    def median_absolute(self) -> float:
        return median(abs(each) for each in self.values)

    @property
    def mean(self) -> float:
        """Bias: above 0 if the replay is too high."""
        return fmean(self.values)

    @property
    def worst(self) -> float:
        """The largest error, with its sign."""
        return max(self.values, key=abs)

    @property
    def largest(self) -> float:
        return abs(self.worst)

    @property
    def share_under(self) -> float:
        """Share of errors below `UNDER`."""
        return sum(each < UNDER for each in self.values) / len(self.values)


def errors_of(rows: Iterable[TimeRow] | Iterable[OperatorRow] | Iterable[MemoryRow]) -> Errors:
    """Return the relative errors of the rows that count."""
    return Errors(tuple(each.error for each in rows if each.counts))


@dataclass(frozen=True)
class Scoreboard:
    """All rows with their replays."""

    runs: PublicRuns
    times: Sequence[StepTime]
    operators: Sequence[OperatorTime]
    memory: Sequence[PeakMemory]
    is_fitted: Callable[[AnyRow], bool] = lambda _: False

    @classmethod
    def of(cls, machines: Mapping[str, Server], profiles: Mapping[str, Path], capture: Capture | None) -> "Scoreboard":
        times, operators, memory = step_times(), operator_times(), peak_memory()
        runs = PublicRuns(machines, capture, asked_batches(times, operators, memory))
        return cls(runs, times, operators, memory, FittedRows.of(profiles))

    @cached_property
    def step_times(self) -> tuple[TimeRow, ...]:
        return _all_held(self.times, self.runs.seconds, self.is_fitted)

    @cached_property
    def operator_times(self) -> tuple[OperatorRow, ...]:
        return _all_held(self.operators, self.runs.operator_seconds, self.is_fitted)

    @cached_property
    def peaks(self) -> tuple[MemoryRow, ...]:
        return _all_held(self.memory, self.runs.peak_bytes, self.is_fitted)

    @cached_property
    def largest_batches(self) -> tuple[BatchRow, ...]:
        """Whether the largest batch is the measured one; nothing was fitted to these."""
        sought = [row for row in self.times if SERIES[row.series].searches_batch]
        return _all_held(sought, self.runs.fit)


def _all_held(
    rows: Sequence[Row], replay: Callable[[Row], Simulated], is_fitted: Callable[[Row], bool] = lambda _: False
) -> tuple[Held[Row, Simulated], ...]:
    """Replay rows network by network, and return them in their order."""
    held: dict[int, Held[Row, Simulated]] = {}
    for at, row in sorted(enumerate(rows), key=lambda each: repr(each[1].setup)):
        try:
            held[at] = Held(row, replay(row), "", is_fitted(row))
        except LeftOutError as reason:
            held[at] = Held(row, None, str(reason), is_fitted(row))
    return tuple(held[at] for at in range(len(rows)))


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
    series = held.row.series
    return (
        claim.networks in (series, series.partition("-")[0])
        and held.row.hardware == card
        and set(claim.reading.split()) <= said
    )


def _most_frequent(reasons: Iterable[str]) -> str:
    found = list(reasons)
    return max(found, key=found.count) if found else "there is none of this card"
