"""The table that a person reads, as text: the same columns on the terminal and in `report.md`.

It has fewer columns than `results.csv`, one unit per column, and is made to fit 80 characters. Of several GPUs those
share a row whose numbers read the same.
"""

from dataclasses import dataclass, replace

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.report.scale import byte_scale, percent, rate_scale, time_scale

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


def summary(result: ScenarioResult) -> tuple[SummaryColumn, ...]:
    """Return the columns that a person needs to compare policies."""
    columns = _columns(result)
    return columns if result.gpus == 1 else _with_equal_gpus_together(columns, result)


def _columns(result: ScenarioResult) -> tuple[SummaryColumn, ...]:
    rows = result.results
    metrics = [row.metrics for row in rows]
    seconds = time_scale(each.iteration_s for each in metrics)
    images = rate_scale(each.images_per_s for each in metrics)
    memory = byte_scale(each.max_memory_bytes for each in metrics)
    copied = byte_scale(each.offloaded_bytes for each in metrics)
    return (
        SummaryColumn("policy", ("policy", ""), tuple(row.policy for row in rows), is_text=True),
        SummaryColumn("fits", ("fits", ""), tuple("yes" if row.fits else NOT_FITTING for row in rows), is_text=True),
        SummaryColumn(
            f"time per iteration, {seconds.unit}",
            ("time", seconds.unit),
            tuple(seconds.number(each.iteration_s) for each in metrics),
        ),
        SummaryColumn("images/s", ("images", "per s"), tuple(images.number(each.images_per_s) for each in metrics)),
        SummaryColumn(
            f"max memory, {memory.unit}",
            ("max mem", memory.unit),
            tuple(memory.number(each.max_memory_bytes) for each in metrics),
        ),
        SummaryColumn(
            f"mean memory, {memory.unit}",
            ("mean mem", memory.unit),
            tuple(memory.number(each.mean_memory_bytes) for each in metrics),
        ),
        SummaryColumn(
            f"offloaded, {copied.unit}",
            ("offload", copied.unit),
            tuple(copied.number(each.offloaded_bytes) for each in metrics),
        ),
        SummaryColumn(
            "stalled, of time",
            ("stalled", "of time"),
            tuple(percent(each.stall_s / each.iteration_s) for each in metrics),
        ),
        SummaryColumn(
            "speed of the oracle", ("speed/", "oracle"), tuple(percent(row.performance_ratio) for row in rows)
        ),
    )


def _with_equal_gpus_together(columns: tuple[SummaryColumn, ...], result: ScenarioResult) -> tuple[SummaryColumn, ...]:
    """Return a row for all GPUs of a policy that read the same, and behind the policy a column that says which."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, cells in zip(result.results, zip(*(column.cells for column in columns), strict=True), strict=True):
        rows.setdefault(cells, []).append(row.gpu)
    merged = [replace(column, cells=cells) for column, cells in zip(columns, zip(*rows, strict=True), strict=True)]
    gpus = tuple("all" if len(numbers) == result.gpus else _ranges(numbers) for numbers in rows.values())
    return (merged[0], SummaryColumn("GPU", ("GPU", ""), gpus, is_text=True), *merged[1:])


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers as people write them: `0-2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
