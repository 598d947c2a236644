"""The table that a person reads, as text: the same columns on the terminal and in `report.md`.

It has fewer columns than `results.csv`, one unit per column, and is made to fit 80 characters. Of several GPUs those
share a row whose numbers read the same.
"""

from dataclasses import replace

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.samples import sample_of
from vdnnsim.report.scale import byte_scale, percent
from vdnnsim.report.summary_columns import (
    SummaryColumn,
    memory_column,
    offloaded_column,
    quantity_column,
    rate_column,
    speed_column,
    text_column,
    time_column,
)

NOT_FITTING = "NO *"
"""Marks a row that does not fit; `FOOTNOTE` explains the star."""

FOOTNOTE = "* does not fit; its numbers are of a replay on a GPU without a capacity"


def summary(result: ScenarioResult) -> tuple[SummaryColumn, ...]:
    """Return the columns that a person needs to compare policies."""
    columns = _columns(result)
    return columns if result.gpus == 1 else _with_equal_gpus_together(columns, result)


def _columns(result: ScenarioResult) -> tuple[SummaryColumn, ...]:
    rows = result.results
    # In the unit of the maximum, which stands beside it.
    memory = byte_scale(row.metrics.max_memory_bytes for row in rows)
    return (
        text_column("policy", (row.policy for row in rows)),
        text_column("fits", ("yes" if row.fits else NOT_FITTING for row in rows)),
        time_column(rows),
        rate_column(sample_of(result.workload.graph), rows),
        memory_column(rows),
        quantity_column("mean memory", "mean mem", memory, (row.metrics.mean_memory_bytes for row in rows)),
        offloaded_column(rows),
        SummaryColumn(
            "stalled, of time",
            ("stalled", "of time"),
            tuple(percent(row.metrics.stall_s / row.metrics.iteration_s) for row in rows),
        ),
        speed_column(rows),
    )


def _with_equal_gpus_together(columns: tuple[SummaryColumn, ...], result: ScenarioResult) -> tuple[SummaryColumn, ...]:
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
