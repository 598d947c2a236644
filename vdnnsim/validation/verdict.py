"""Whether a validation holds: each requirement with what came out, and the rows that break it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from vdnnsim.report.scale import percent
from vdnnsim.validation.method import Tolerance
from vdnnsim.validation.row import Outcome, Row


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that must hold.

    Attributes:
        name: of what.
        required: what may be, in words.
        found: what was, in words.
        broken_by: the rows that break it; where only their mean counts, the one that is farthest off.
    """

    name: str
    required: str
    found: str
    holds: bool
    broken_by: tuple[Row, ...] = ()


def compared(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows that have both sides."""
    return tuple(row for row in rows if row.time_error is not None)


def mean_absolute_error(rows: Sequence[Row]) -> float:
    """Return the mean absolute error of the iteration time, relative to the measured one, of rows with both sides."""
    return fmean(abs(row.time_error) for row in rows if row.time_error is not None)


def requirements(rows: Sequence[Row], tolerance: Tolerance) -> tuple[Requirement, ...]:
    """Return what must hold of these rows; a class of rows that is empty has no requirement, none at all fails."""
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
    judged.append(_fit(rows))
    return tuple(judged)


def _time(name: str, rows: Sequence[Row], limit: float, tolerance: Tolerance) -> Requirement:
    mean = mean_absolute_error(rows)
    worst = max(rows, key=lambda row: abs(row.time_error or 0.0))
    found = f"{percent(mean)} in the mean of {len(rows)} rows, {percent(abs(worst.time_error or 0.0))} at worst"
    if tolerance.every_row:
        broken = tuple(row for row in rows if abs(row.time_error or 0.0) > limit)
        return Requirement(name, f"within {100 * limit:g} % in every row", found, not broken, broken)
    holds = mean <= limit
    return Requirement(name, f"within {100 * limit:g} % in the mean", found, holds, () if holds else (worst,))


def _memory(rows: Sequence[Row], limit: float) -> Requirement:
    broken = tuple(row for row in rows if abs(row.memory_error or 0.0) > limit)
    worst = max(abs(row.memory_error or 0.0) for row in rows)
    found = f"{100 * worst:.3g} % at worst" if worst else f"equal in all {len(rows)} rows"
    required = f"within {100 * limit:g} % in every row" if limit else "equal in every row"
    return Requirement("peak requested memory", required, found, not broken, broken)


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
    """Whether one side has room for a row and the other has not."""
    return row.outcome is Outcome.OUT_OF_MEMORY or (row.outcome is Outcome.RAN and row.simulated is None)
