"""The table that a person reads: the same columns on the terminal and in the report."""

from collections.abc import Callable, Sequence

from vdnnsim.units import format_bytes, format_seconds
from vdnnsim.validation.reading import Reading
from vdnnsim.validation.row import Outcome, Row

HEADER = (
    "network",
    "policy",
    "calibrated",
    "time",
    "simulated",
    "error",
    "stalls",
    "simulated",
    "memory",
    "simulated",
    "",
)
"""Titles of the columns; what was measured stands before what was simulated."""


def summary_cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return a row of text for each row; what did not run says so in the last column."""
    return [
        (
            row.case.label,
            row.label,
            "" if not row.kernels else "yes" if row.calibrated else "no",
            *_both(row, lambda side: format_seconds(side.iteration_s)),
            "" if row.time_error is None else f"{100 * row.time_error:+.1f} %",
            *_both(row, lambda side: format_seconds(side.stall_s)),
            *_both(row, lambda side: format_bytes(side.peaks.requested_bytes)),
            _remark(row),
        )
        for row in rows
    ]


def _both(row: Row, text: Callable[[Reading], str]) -> tuple[str, ...]:
    return tuple("" if side is None else text(side) for side in (row.measured, row.simulated))


def _remark(row: Row) -> str:
    if row.outcome is not Outcome.RAN:
        return str(row.outcome.value)
    if row.simulated is None:
        return "fits on the device alone"
    if row.order_fault is not None:
        return "order"
    return f"memory {100 * row.memory_error:+.2g} %" if row.memory_error else ""
