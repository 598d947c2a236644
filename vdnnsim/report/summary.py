"""The table that a person reads, as text: the same columns on the terminal and in `report.md`.

It has fewer columns than `results.csv`, one unit per column, and is made to fit 80 characters.
"""

from dataclasses import dataclass

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
        cells: one for each result.
    """

    title: str
    header: tuple[str, str]
    cells: tuple[str, ...]


def summary(result: ScenarioResult) -> tuple[SummaryColumn, ...]:
    """Return the columns that a person needs to compare policies."""
    rows = result.results
    metrics = [row.metrics for row in rows]
    seconds = time_scale(each.iteration_s for each in metrics)
    images = rate_scale(each.images_per_s for each in metrics)
    memory = byte_scale(each.max_memory_bytes for each in metrics)
    copied = byte_scale(each.offloaded_bytes for each in metrics)
    return (
        SummaryColumn("policy", ("policy", ""), tuple(row.policy for row in rows)),
        SummaryColumn("fits", ("fits", ""), tuple("yes" if row.fits else NOT_FITTING for row in rows)),
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
