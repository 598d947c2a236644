"""Rows of a validation, measured and simulated, and their requirements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate
from statistics import fmean
from typing import Final

from vdnnsim.analysis.metrics import stall_seconds
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import Overflow
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Offload, Stream
from vdnnsim.plans.placement import needed_bytes, place_repeatedly
from vdnnsim.plans.trace import IterationTrace, MemoryCount, StallCause
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.report.scale import percent
from vdnnsim.validation.method import Task, Tolerance


@dataclass(frozen=True, slots=True)
class Side:
    """One iteration, on a device or in the simulator; `stall_by_cause` has the longest stalls first."""

    trace: IterationTrace
    peaks: MemoryCount
    iteration_s: float
    stall_by_cause: tuple[tuple[StallCause, float], ...]
    offloaded_bytes: int

    @property
    def stall_s(self) -> float:
        return sum((seconds for _, seconds in self.stall_by_cause), 0.0)

    @property
    def copy_stall_s(self) -> float:
        copies = (StallCause.OFFLOAD, StallCause.PREFETCH, StallCause.ON_DEMAND)
        return sum((seconds for cause, seconds in self.stall_by_cause if cause in copies), 0.0)

    @classmethod
    def of(cls, trace: IterationTrace, peaks: MemoryCount) -> "Side":
        plan = trace.plan
        copies = [plan.operations[span.operation] for span in trace.spans_on(Stream.MEMORY)]
        return cls(
            trace=trace,
            peaks=peaks,
            iteration_s=trace.iteration_s,
            stall_by_cause=stall_seconds(trace),
            offloaded_bytes=sum(plan.copied_bytes(copy) for copy in copies if isinstance(copy, Offload)),
        )


def predicted_peaks(plan: TrainingPlan, limits: MemoryLimits, *, caching_allocator: bool, times: int) -> MemoryCount:
    """Return requested bytes of a plan executed so many times in a row, and those of the caching allocator.

    The latter are None without the allocator, or where its model finds no room.
    """
    requested_bytes = needed_bytes(plan)
    if not caching_allocator:
        return MemoryCount(requested_bytes, None, None)
    placed = place_repeatedly(plan, replace(limits, model=MemoryModel.PYTORCH), times)
    if isinstance(placed, Overflow):
        return MemoryCount(requested_bytes, None, None)
    return MemoryCount(requested_bytes, max(accumulate(placed.deltas), default=0), placed.pool_bytes)


STILL_CALIBRATED: Final = 0.05
"""Share of kernel time that may be predicted in a calibrated row: calibration refuses kernels with noisy times."""


class Outcome(Enum):
    """Outcome of a row; only one that ran can be compared."""

    RAN = "ran"
    DOES_NOT_FIT = "does not fit"
    REFUSED = "refused"
    OUT_OF_MEMORY = "out of memory"
    """The plan fits by its own sizes, but not on the device."""


@dataclass(frozen=True, slots=True)
class Raw:
    """An iteration without given durations, measured and simulated."""

    measured_s: float
    simulated_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        profiled_on_device: whether vdnn_dyn ran its trials on the device.
        decision: of vdnn_dyn, with trials on the device and by replays; else empty.
        kernels, unmeasured_kernels: of the plan, and those with a predicted time.
        note: why nothing was measured, or empty.
        measured, simulated: None where the plan was not executed or replayed.
        raw: None where durations were not given.
        order_fault: first deviation of a run from the order of the replay, or None.
    """

    task: Task
    policy: str
    outcome: Outcome
    algorithms: str = ""
    profiled_on_device: bool = False
    decision: str = ""
    kernels: int = 0
    unmeasured_kernels: int = 0
    predicted_share: float = 0.0
    note: str = ""
    measured: Side | None = None
    simulated: Side | None = None
    raw: Raw | None = None
    runs_s: tuple[float, ...] = ()
    order_fault: str | None = None

    @property
    def calibrated(self) -> bool:
        """Whether most of its kernel time was measured on this machine."""
        return self.predicted_share <= STILL_CALIBRATED

    @property
    def label(self) -> str:
        return f"{self.policy} by device trials" if self.profiled_on_device else self.policy

    @property
    def time_error(self) -> float | None:
        """(simulated - measured) / measured of the iteration time; None where a side is missing."""
        if self.measured is None or self.simulated is None:
            return None
        return self.simulated.iteration_s / self.measured.iteration_s - 1

    @property
    def memory_error(self) -> float | None:
        """The same of the peak of requested bytes."""
        if self.measured is None or self.simulated is None:
            return None
        return self.simulated.peaks.requested_bytes / self.measured.peaks.requested_bytes - 1

    @property
    def spread(self) -> float | None:
        """(slowest - fastest) / fastest of the runs; None for one run and for given durations."""
        return max(self.runs_s) / min(self.runs_s) - 1 if len(self.runs_s) > 1 and self.raw is None else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement, its finding, and the rows that break it, of a mean the row with the largest error."""

    name: str
    required: str
    found: str
    holds: bool
    broken_by: tuple[Row, ...] = ()


def compared(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(row for row in rows if row.time_error is not None)


def mean_absolute_error(rows: Sequence[Row]) -> float:
    """Return the mean absolute relative error of the iteration time."""
    return fmean(abs(row.time_error) for row in rows if row.time_error is not None)


def requirements(rows: Sequence[Row], tolerance: Tolerance) -> tuple[Requirement, ...]:
    """Return the requirements of rows; empty classes have none, and nothing compared is a failure."""
    both = compared(rows)
    calibrated = [row for row in both if row.calibrated]
    others = [row for row in both if not row.calibrated]
    judged = [Requirement("rows compared", "at least one", f"{len(both)} of {len(rows)}", holds=bool(both))]
    if calibrated:
        judged.append(_time("iteration time, kernels calibrated", calibrated, tolerance.calibrated, tolerance))
    if others:
        judged.append(_time("iteration time, never calibrated", others, tolerance.never_calibrated, tolerance))
    if both:
        judged += [_memory(both, tolerance.memory), _order(both)]
    return (*judged, _fit(rows))


def _time(name: str, rows: Sequence[Row], limit: float, tolerance: Tolerance) -> Requirement:
    mean = mean_absolute_error(rows)
    worst = max(rows, key=lambda row: abs(row.time_error or 0.0))
    in_mean, at_worst = (
        _beside(limit, error, (percent(error, digits) for digits in range(1, 9)))
        for error in (mean, abs(worst.time_error or 0.0))
    )
    found = f"{in_mean} in the mean of {len(rows)} rows, {at_worst} at worst"
    if tolerance.every_row:
        broken = tuple(row for row in rows if abs(row.time_error or 0.0) > limit)
        return Requirement(name, f"within {100 * limit:g} % in every row", found, not broken, broken)
    holds = mean <= limit
    return Requirement(name, f"within {100 * limit:g} % in the mean", found, holds, () if holds else (worst,))


def _memory(rows: Sequence[Row], limit: float) -> Requirement:
    broken = tuple(row for row in rows if abs(row.memory_error or 0.0) > limit)
    worst = max(abs(row.memory_error or 0.0) for row in rows)
    shown = _beside(limit, worst, (f"{100 * worst:.{digits}g} %" for digits in range(3, 11)))
    found = f"{shown} at worst" if worst else f"equal in all {len(rows)} rows"
    required = f"within {100 * limit:g} % in every row" if limit else "equal in every row"
    return Requirement("peak requested memory", required, found, not broken, broken)


def _beside(limit: float, error: float, texts: Iterable[str]) -> str:
    """Return the first text of an error, of ever more digits, that is above the limit where the error is."""
    *shorter, longest = texts
    above = error > limit
    return next((each for each in shorter if (float(each.removesuffix(" %")) > 100 * limit) == above), longest)


def _order(rows: Sequence[Row]) -> Requirement:
    broken = tuple(row for row in rows if row.order_fault is not None)
    found = f"kept in {len(rows) - len(broken)} of {len(rows)} rows"
    return Requirement("order of kernels and copies", "kept in every run", found, not broken, broken)


def _fit(rows: Sequence[Row]) -> Requirement:
    broken = tuple(row for row in rows if _disagrees(row))
    agree = sum(row.outcome is Outcome.DOES_NOT_FIT and not _disagrees(row) for row in rows)
    found = f"{len(broken)} rows differ" if broken else f"the same; {agree} rows do not fit on either side"
    return Requirement("what fits", "the same on both sides", found, not broken, broken)


def _disagrees(row: Row) -> bool:
    return row.outcome is Outcome.OUT_OF_MEMORY or (row.outcome is Outcome.RAN and row.simulated is None)
