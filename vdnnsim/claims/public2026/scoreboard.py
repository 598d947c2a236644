"""The scoreboard: published measurements beside their replays, with errors, or why there is no replay."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, Generic, TypeVar

from vdnnsim.claims.public2026.fitted import FittedRows
from vdnnsim.claims.public2026.measurements import (
    SERIES,
    AnyRow,
    OperatorTime,
    PeakMemory,
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
        """Whether it has a replay and nothing was fitted to it."""
        return self.simulated is not None and not self.fitted

    @property
    def error(self) -> float:
        """Relative error."""
        assert isinstance(self.simulated, float | int), "only numbers have an error"
        return self.simulated / self.row.measured - 1

    @property
    def error_ratio(self) -> float | None:
        """The error; None if it is left out."""
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
        """Mean absolute error."""
        return fmean(abs(each) for each in self.values)

    @property
    def median_absolute(self) -> float:
        """Median absolute error."""
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
        """The largest absolute error."""
        return abs(self.worst)

    @property
    def share_under(self) -> float:
        """Share of errors below `UNDER`."""
        return sum(each < UNDER for each in self.values) / len(self.values)


def errors_of(rows: Iterable[TimeRow] | Iterable[OperatorRow] | Iterable[MemoryRow]) -> Errors:
    """Return the relative errors of the rows that count."""
    return Errors(tuple(each.error for each in rows if each.counts))


def _unfitted(_: object) -> bool:
    return False


@dataclass(frozen=True)
class Scoreboard:
    """All rows with their replays."""

    runs: PublicRuns
    times: Sequence[StepTime]
    operators: Sequence[OperatorTime]
    memory: Sequence[PeakMemory]
    is_fitted: Callable[[AnyRow], bool] = _unfitted

    @classmethod
    def of(cls, machines: Mapping[str, Server], profiles: Mapping[str, Path], capture: Capture | None) -> "Scoreboard":
        """Return the scoreboard of all rows, on machines by name and by the files of their profiles."""
        times, operators, memory = step_times(), operator_times(), peak_memory()
        runs = PublicRuns(machines, capture, asked_batches(times, operators, memory))
        return cls(runs, times, operators, memory, FittedRows.of(profiles))

    @cached_property
    def step_times(self) -> tuple[TimeRow, ...]:
        """Seconds of an iteration."""
        return _all_held(self.times, self.runs.seconds, self.is_fitted)

    @cached_property
    def operator_times(self) -> tuple[OperatorRow, ...]:
        """Seconds of all operators of a kind."""
        return _all_held(self.operators, self.runs.operator_seconds, self.is_fitted)

    @cached_property
    def peaks(self) -> tuple[MemoryRow, ...]:
        """Peaks of the process memory."""
        return _all_held(self.memory, self.runs.peak_bytes, self.is_fitted)

    @cached_property
    def largest_batches(self) -> tuple[BatchRow, ...]:
        """Whether the largest batch is the measured one; nothing was fitted to these."""
        sought = [row for row in self.times if SERIES[row.series].searches_batch]
        return _all_held(sought, self.runs.fit)


def _all_held(
    rows: Sequence[Row], replay: Callable[[Row], Simulated], is_fitted: Callable[[Row], bool] = _unfitted
) -> tuple[Held[Row, Simulated], ...]:
    """Replay rows network by network, and return them in their order."""
    order = sorted(range(len(rows)), key=lambda at: repr(rows[at].setup))
    held = {at: _held(rows[at], replay, fitted=is_fitted(rows[at])) for at in order}
    return tuple(held[at] for at in range(len(rows)))


def _held(row: Row, replay: Callable[[Row], Simulated], *, fitted: bool) -> Held[Row, Simulated]:
    try:
        return Held(row, replay(row), "", fitted)
    except LeftOutError as reason:
        return Held(row, None, str(reason), fitted)
