"""The scoreboard: every published measurement beside its replay, with its error, or why there is no replay."""

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
"""An estimate of memory that is further below what was measured is one that lets a run fail."""


@dataclass(frozen=True, slots=True)
class Held(Generic[Row, Simulated]):
    """A row with what the replay says.

    Attributes:
        simulated: None where it is left out.
        left_out: why; empty where it is not.
        fitted: whether a parameter of the machine was fitted on it; such a row is no evidence.
    """

    row: Row
    simulated: Simulated | None
    left_out: str
    fitted: bool

    @property
    def counts(self) -> bool:
        """Whether it is evidence."""
        return self.simulated is not None and not self.fitted

    @property
    def error(self) -> float:
        """Simulated over measured, less one."""
        assert isinstance(self.simulated, float | int), "only numbers have an error"
        return self.simulated / self.row.measured - 1

    @property
    def error_ratio(self) -> float | None:
        """The error; None where it is left out."""
        return None if self.simulated is None else self.error


AnyHeld = Held[Any, Any]
TimeRow = Held[StepTime, float]
OperatorRow = Held[OperatorTime, float]
MemoryRow = Held[PeakMemory, int]
BatchRow = Held[StepTime, Fit]


@dataclass(frozen=True, slots=True)
class Errors:
    """What relative errors are together; there must be one at least."""

    values: tuple[float, ...]

    @property
    def mean_absolute(self) -> float:
        """The mean of how far off each is, whatever its sign."""
        return fmean(abs(each) for each in self.values)

    @property
    def median_absolute(self) -> float:
        """The median of how far off each is, whatever its sign."""
        return median(abs(each) for each in self.values)

    @property
    def mean(self) -> float:
        """The mean with signs, the bias: above 0 where the replay says too much."""
        return fmean(self.values)

    @property
    def worst(self) -> float:
        """The one that is furthest off."""
        return max(self.values, key=abs)

    @property
    def largest(self) -> float:
        """How far that one is off, whatever its sign."""
        return abs(self.worst)

    @property
    def share_under(self) -> float:
        """The share of those below `UNDER`."""
        return sum(each < UNDER for each in self.values) / len(self.values)


def errors_of(rows: Iterable[TimeRow] | Iterable[OperatorRow] | Iterable[MemoryRow]) -> Errors:
    """Return simulated over measured, less one, of rows that count."""
    return Errors(tuple(each.error for each in rows if each.counts))


def faketensor_errors(rows: Iterable[MemoryRow]) -> Errors:
    """Return the errors of FakeTensor's estimates on the rows that count."""
    return Errors(tuple(each.row.faketensor_error for each in rows if each.counts))


def _unfitted(_: object) -> bool:
    return False


@dataclass(frozen=True)
class Scoreboard:
    """All rows, each replayed once, when it is first asked for.

    Attributes:
        runs: the replays.
        times, operators, memory: what was measured.
        is_fitted: whether a parameter of its machine was fitted on a row.
    """

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
        """What the driver shows."""
        return _all_held(self.memory, self.runs.peak_bytes, self.is_fitted)

    @cached_property
    def largest_batches(self) -> tuple[BatchRow, ...]:
        """Whether the largest batch lies where it was found; nothing was fitted on that."""
        sought = [row for row in self.times if SERIES[row.series].searches_batch]
        return _all_held(sought, self.runs.fit)


def _all_held(
    rows: Sequence[Row], replay: Callable[[Row], Simulated], is_fitted: Callable[[Row], bool] = _unfitted
) -> tuple[Held[Row, Simulated], ...]:
    """Hold all rows of one network after the other, and return them in their order."""
    order = sorted(range(len(rows)), key=lambda at: repr(rows[at].setup))
    held = {at: _held(rows[at], replay, fitted=is_fitted(rows[at])) for at in order}
    return tuple(held[at] for at in range(len(rows)))


def _held(row: Row, replay: Callable[[Row], Simulated], *, fitted: bool) -> Held[Row, Simulated]:
    try:
        return Held(row, replay(row), "", fitted)
    except LeftOutError as reason:
        return Held(row, None, str(reason), fitted)
