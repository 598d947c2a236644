"""Summary table of a run for terminal and `report.md`: fewer columns than `results.csv`, one unit each.

It fits 80 characters. GPUs whose numbers read the same share a row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from vdnnsim.analysis.columns import COLUMNS, Measured
from vdnnsim.analysis.memory import process_bytes
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.cost.trust import PEAKS_TOO_LOW
from vdnnsim.dnn.samples import Sample, sample_of
from vdnnsim.report.document import Column, Fold, Table, text_column
from vdnnsim.report.scale import Scale, byte_scale, per_second, percent, percents, scale_of
from vdnnsim.units import format_bytes

JUST = "just"
"""Marks a row that fits by its simulated peak alone."""
JUST_NOTE = f"{JUST}: fits by its simulated peak, but peaks may be {percent(PEAKS_TOO_LOW)} too low"
NOT_FITTING = "NO *"
"""Marks a row that does not fit."""
FOOTNOTE = "* does not fit; its numbers are of a replay on a GPU without a capacity"
BEYOND: Final = ("reserved_bytes", "process_bytes")
"""Columns of memory beyond what is allocated."""
_LEFT_OUT_FIRST: Final = (
    *("mean_allocated_bytes", "offloaded_bytes", "stall_s", "samples_per_s", "performance_ratio", "reserved_bytes"),
    *("iteration_s", "allocated_bytes"),
)
"""Columns that a narrow terminal drops, in this order: speed before memory."""


def left_out_first(names: Iterable[str], columns: Iterable[Column], result: ScenarioResult) -> tuple[str, ...]:
    """Return the titles of columns that are there, in an order; that of the throughput names the samples."""
    rate, there = per_second(sample_of(result.workload.graph)), {each.title for each in columns}
    titles = {name: column.title for name, column in COLUMNS.items()} | {"samples_per_s": rate}
    return tuple(title for name in names if (title := titles.get(name, name)) in there)


def fits_column(result: ScenarioResult, rows: Iterable[PolicyResult]) -> Column:
    return text_column("fits", (JUST if result.just_fits(row) else "yes" if row.fits else NOT_FITTING for row in rows))


def quantity_column(name: str, rows: Sequence[Measured], scale: Scale | None = None) -> Column:
    column = COLUMNS[name]
    numbers = [column.number(row) for row in rows]
    if name.endswith("_ratio"):
        above, slash, below = column.short.partition("/")
        return Column(column.title, percents(numbers), header=f"{above}{slash}\n{below}")
    scaled = (scale or scale_of(name, numbers)).with_digits(numbers)
    cells = tuple(map(scaled.number, numbers))
    return Column(column.title, cells, scaled.unit, f"{column.short}\n{scaled.unit}")


def rate_column(sample: Sample, rows: Sequence[Measured]) -> Column:
    rates = [COLUMNS["samples_per_s"].number(row) for row in rows]
    scale = scale_of("samples_per_s", rates).with_digits(rates)
    return Column(per_second(sample), tuple(map(scale.number, rates)), header=f"{sample.names}\nper s")


def summary(result: ScenarioResult, has_all: str = "results.csv has all") -> Table:
    """Return the summary; rows that do not fit are dimmed, and `has_all` says where the other columns are."""
    columns = _columns(result)
    if result.gpus > 1:
        columns = _with_equal_gpus_joined(columns, result)
    unfit = next(column for column in columns if column.title == "fits").cells
    dropped = left_out_first(_LEFT_OUT_FIRST, columns, result)
    dim, process = tuple(cell == NOT_FITTING for cell in unfit), COLUMNS["process_bytes"].title
    return Table(columns, dropped, has_all, dim, (process,))


def holds_more(result: ScenarioResult) -> bool:
    """Whether a policy has more process memory than it allocates, by gaps or the context: of those that fit, if any."""
    gpu, fitting = result.server.gpu, [row for row in result.results if row.fits]
    rows = fitting or result.results
    return any(process_bytes(row.trace, gpu) > row.metrics.allocated_bytes for row in rows)


def reserved_ahead(result: ScenarioResult) -> tuple[str, ...]:
    """Return a line for each policy that reserves ahead more than it needs."""
    return tuple(
        f"{row.policy} reserves memory ahead, all of which `reserved` and `process` count; whether it fits, ranks and "
        f"pictures go by the {format_bytes(needed)} that it needs"
        for row in result.slowest
        if (needed := result.needed_bytes(row)) != row.held_bytes(result.server.gpu)
    )


def _columns(result: ScenarioResult) -> tuple[Column, ...]:
    rows = [Measured.of(result, row) for row in result.results]
    beyond = BEYOND if holds_more(result) else ()
    # One unit for all that stands side by side.
    memory = byte_scale(COLUMNS[name].number(row) for name in ("allocated_bytes", *beyond) for row in rows)
    stalled = tuple(percent(row.metrics.stall_s / row.metrics.iteration_s) for row in rows)
    return (
        text_column("policy", (row.policy for row in result.results), Fold.LABEL),
        fits_column(result, result.results),
        quantity_column("iteration_s", rows),
        rate_column(sample_of(result.workload.graph), rows),
        *(quantity_column(name, rows, memory) for name in ("allocated_bytes", *beyond)),
        quantity_column("mean_allocated_bytes", rows, memory),
        quantity_column("offloaded_bytes", rows),
        Column(COLUMNS["stall_s"].title, stalled, "of time", f"{COLUMNS['stall_s'].short}\nof time"),
        quantity_column("performance_ratio", rows),
    )


def _with_equal_gpus_joined(columns: tuple[Column, ...], result: ScenarioResult) -> tuple[Column, ...]:
    """Return one row for equal GPUs of a policy, with a column of their numbers behind the policy."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, cells in zip(result.results, zip(*(column.cells for column in columns), strict=True), strict=True):
        rows.setdefault(cells, []).append(row.gpu)
    merged = [replace(column, cells=cells) for column, cells in zip(columns, zip(*rows, strict=True), strict=True)]
    gpus = tuple("all" if len(numbers) == result.gpus else _ranges(numbers) for numbers in rows.values())
    return (merged[0], text_column("GPU", gpus), *merged[1:])


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers as ranges: `0-2, 5`."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
