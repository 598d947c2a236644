"""Tables of a validation: the columns of `validation.csv`, and the printed table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from vdnnsim.analysis.columns import Value
from vdnnsim.plans.trace import StallCause
from vdnnsim.report.document import plain_table
from vdnnsim.report.result_table import ResultTable
from vdnnsim.units import format_bytes, format_seconds
from vdnnsim.validation.row import STILL_CALIBRATED, Outcome, Row, Side


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its definition in one line, and the function for its cells; None is an empty cell."""

    name: str
    meaning: str
    value: Callable[[Row], Value | None]


def column_names() -> tuple[str, ...]:
    return tuple(column.name for column in COLUMNS)


def cells(row: Row) -> tuple[Value, ...]:
    values = (column.value(row) for column in COLUMNS)
    return tuple("" if value is None else value for value in values)


def _sides(name: str, meaning: str, read: Callable[[Side], Value | None]) -> Iterator[Column]:
    yield Column(
        f"measured_{name}", f"{meaning}, on the device", lambda row: read(row.measured) if row.measured else None
    )
    yield Column(
        f"simulated_{name}", f"{meaning}, in the simulator", lambda row: read(row.simulated) if row.simulated else None
    )


def _stall(cause: StallCause) -> Iterator[Column]:
    name = f"stall_{cause.name.lower()}_s"
    return _sides(name, f"seconds of it: {cause.value}", lambda side: dict(side.stall_by_cause).get(cause, 0.0))


_ALGORITHMS: Final = "m memory-optimal, p performance-optimal, or what a dynamic policy settled on"
_CALIBRATED: Final = (
    f"whether at most {STILL_CALIBRATED:.0%} of the plan's kernel time is predicted, and the rest was measured, "
    "kernel by kernel, on this machine"
)
_MEMORY_SHARE: Final = "device memory that plans may use, as a share of what base(p) asks for; empty for all of it"
_ON_DEVICE: Final = "whether vdnn_dyn ran its trials on the device and decided otherwise than by replays"
_ORDER: Final = "kept where every run kept the order of the replay; else where the first one departed from it"
_RAW: Final = "seconds of one iteration whose durations were not given: one run, reported and never judged"
_CACHED: Final = "most bytes in blocks of PyTorch's caching allocator"
_RESERVED: Final = "most bytes that PyTorch's caching allocator reserved"
_CAUSES: Final = (StallCause.OFFLOAD, StallCause.PREFETCH, StallCause.ON_DEMAND, StallCause.PINNING, StallCause.HOST)

COLUMNS: tuple[Column, ...] = (
    Column("network", "the network that is trained", lambda row: row.task.network),
    Column("batch_size", "images per iteration", lambda row: row.task.batch_size),
    Column("memory_share", _MEMORY_SHARE, lambda row: row.task.memory_share),
    Column("policy", "the policy with its options", lambda row: row.policy),
    Column("profiled_on_device", _ON_DEVICE, lambda row: row.profiled_on_device),
    Column("algorithms", f"convolution algorithms: {_ALGORITHMS}", lambda row: row.algorithms),
    Column("outcome", "ran, does not fit, refused or out of memory", lambda row: row.outcome.value),
    Column("calibrated", _CALIBRATED, lambda row: row.calibrated if row.kernels else None),
    Column("kernels", "kernels of one iteration", lambda row: row.kernels),
    Column("unmeasured_kernels", "those of them whose time is predicted", lambda row: row.unmeasured_kernels),
    Column(
        "predicted_share",
        "of the time of all kernels, what those take",
        lambda row: float(row.predicted_share) if row.kernels else None,
    ),
    *_sides("iteration_s", "seconds of one iteration", lambda side: float(side.iteration_s)),
    Column("iteration_error", "(simulated - measured) / measured of the iteration", lambda row: row.time_error),
    Column("runs", "runs on the device, the warm-up not counted", lambda row: len(row.runs_s)),
    Column(
        "spread",
        "(slowest - fastest) / fastest of the runs; empty of one run, and of given durations",
        lambda row: row.spread,
    ),
    Column("raw_measured_iteration_s", _RAW, lambda row: row.raw.measured_s if row.raw else None),
    Column(
        "raw_simulated_iteration_s",
        "the same in the simulator, from the calibrated times",
        lambda row: row.raw.simulated_s if row.raw else None,
    ),
    *_sides(
        "stall_s", "seconds in which the compute stream waited before or between kernels", lambda side: side.stall_s
    ),
    *(column for cause in _CAUSES for column in _stall(cause)),
    *_sides("requested_bytes", "most bytes requested at once", lambda side: side.peaks.requested_bytes),
    Column("requested_error", "(simulated - measured) / measured of it", lambda row: row.memory_error),
    *_sides("allocated_bytes", _CACHED, lambda side: side.peaks.allocated_bytes),
    *_sides("reserved_bytes", _RESERVED, lambda side: side.peaks.reserved_bytes),
    *_sides("offloaded_bytes", "bytes copied to the host", lambda side: side.offloaded_bytes),
    Column("order", _ORDER, lambda row: None if row.time_error is None else row.order_fault or "kept"),
    Column(
        "decision", "of vdnn_dyn: whether it decides alike when its trials run on the device", lambda row: row.decision
    ),
    Column("note", "why nothing was compared", lambda row: row.note),
)

_LEFT_OUT_FIRST: Final = ("calibrated", "simulated", "memory", "simulated", "stalls", "error", "simulated")
"""Columns that a narrow terminal drops, in this order."""

HEADER: Final = (
    *("network", "policy", "calibrated", "time", "simulated", "error"),
    *("stalls", "simulated", "memory", "simulated", ""),
)
"""Titles of the printed table, measured before simulated."""


def validation_table(rows: Sequence[Row], has_all: str) -> ResultTable:
    """Return the rows as a table; `has_all` says where columns are that do not fit a terminal."""
    shown = plain_table(HEADER, summary_cells(rows), has_all, _LEFT_OUT_FIRST)
    return ResultTable(column_names(), [cells(row) for row in rows], shown)


def summary_cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the cells of the printed table; the last column has faults."""
    return [
        (
            row.task.label,
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


def _both(row: Row, text: Callable[[Side], str]) -> tuple[str, ...]:
    return tuple("" if side is None else text(side) for side in (row.measured, row.simulated))


def _remark(row: Row) -> str:
    if row.outcome is not Outcome.RAN:
        return str(row.outcome.value)
    if row.simulated is None:
        return "fits on the device alone"
    if row.order_fault is not None:
        return "order"
    return f"memory {100 * row.memory_error:+.2g} %" if row.memory_error else ""
