"""The table that a person reads, as text: the same columns on the terminal and in `report.md`.

It has fewer columns than `results.csv`, one unit per column, and is made to fit 80 characters. Of several GPUs those
share a row whose numbers read the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vdnnsim.analysis.columns import COLUMNS, Measured
from vdnnsim.analysis.memory import runtime_bytes
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.samples import Sample, sample_of
from vdnnsim.report.scale import Scale, byte_scale, per_second, percent, percents, scale_of

NOT_FITTING = "NO *"
"""Marks a row that does not fit; `FOOTNOTE` explains the star."""

FOOTNOTE = "* does not fit; its numbers are of a replay on a GPU without a capacity"


@dataclass(frozen=True, slots=True)
class SummaryColumn:
    """One column.

    Attributes:
        title: what it says, with its unit.
        header: the same in two short lines, for the terminal.
        cells: one for each row.
        is_text: whether it reads from the left.
    """

    title: str
    header: tuple[str, str]
    cells: tuple[str, ...]
    is_text: bool = False


def text_column(title: str, cells: Iterable[str]) -> SummaryColumn:
    """Return a column of text."""
    return SummaryColumn(title, (title, ""), tuple(cells), is_text=True)


def quantity_column(name: str, rows: Sequence[Measured], scale: Scale | None = None) -> SummaryColumn:
    """Return a column of results in one unit, which the title and the second line of the header name.

    Args:
        name: of the column.
        rows: what stands in it.
        scale: the unit; the one that suits the numbers if not given.
    """
    column = COLUMNS[name]
    numbers = [column.number(row) for row in rows]
    if name.endswith("_ratio"):
        above, slash, below = column.short.partition("/")
        return SummaryColumn(column.title, (above + slash, below), percents(numbers))
    telling = (scale or scale_of(name, numbers)).telling(numbers)
    cells = tuple(map(telling.number, numbers))
    return SummaryColumn(f"{column.title}, {telling.unit}", (column.short, telling.unit), cells)


def rate_column(sample: Sample, rows: Sequence[Measured]) -> SummaryColumn:
    """Return the throughput of a GPU in images, or in what else the network reads."""
    rates = [COLUMNS["images_per_s"].number(row) for row in rows]
    scale = scale_of("images_per_s", rates).telling(rates)
    return SummaryColumn(per_second(sample), (sample.names, "per s"), tuple(map(scale.number, rates)))


def summary(result: ScenarioResult) -> tuple[SummaryColumn, ...]:
    """Return the columns that a person needs to compare policies."""
    columns = _columns(result)
    return columns if result.gpus == 1 else _with_equal_gpus_joined(columns, result)


def holds_more(result: ScenarioResult) -> bool:
    """Whether the driver counts more than is in use for a policy that fits: gaps, or the context of CUDA."""
    gpu = result.server.gpu
    return any(runtime_bytes(row.trace, gpu) > row.metrics.max_memory_bytes for row in result.results if row.fits)


def _columns(result: ScenarioResult) -> tuple[SummaryColumn, ...]:
    rows = [Measured.of(result, row) for row in result.results]
    # In the unit of the maximum, which stands beside it.
    memory = byte_scale(row.metrics.max_memory_bytes for row in rows)
    stalled = tuple(percent(row.metrics.stall_s / row.metrics.iteration_s) for row in rows)
    return (
        text_column("policy", (row.policy for row in result.results)),
        text_column("fits", ("yes" if row.fits else NOT_FITTING for row in result.results)),
        quantity_column("iteration_s", rows),
        rate_column(sample_of(result.workload.graph), rows),
        quantity_column("max_memory_bytes", rows),
        *([quantity_column("runtime_bytes", rows, memory)] if holds_more(result) else []),
        quantity_column("mean_memory_bytes", rows, memory),
        quantity_column("offloaded_bytes", rows),
        SummaryColumn(f"{COLUMNS['stall_s'].title}, of time", (COLUMNS["stall_s"].short, "of time"), stalled),
        quantity_column("performance_ratio", rows),
    )


def _with_equal_gpus_joined(columns: tuple[SummaryColumn, ...], result: ScenarioResult) -> tuple[SummaryColumn, ...]:
    """Return a row for all GPUs of a policy that read the same, and behind the policy a column that says which."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, cells in zip(result.results, zip(*(column.cells for column in columns), strict=True), strict=True):
        rows.setdefault(cells, []).append(row.gpu)
    merged = [replace(column, cells=cells) for column, cells in zip(columns, zip(*rows, strict=True), strict=True)]
    gpus = tuple("all" if len(numbers) == result.gpus else _ranges(numbers) for numbers in rows.values())
    return (merged[0], text_column("GPU", gpus), *merged[1:])


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers as people write them: `0-2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
