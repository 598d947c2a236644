"""Columns of a table that a person reads: one unit a column, and a header of two short lines for the terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vdnnsim.analysis.results import PolicyResult
from vdnnsim.dnn.samples import Sample
from vdnnsim.report.rates import per_second
from vdnnsim.report.scale import Scale, byte_scale, percents, rate_scale, time_scale


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


def quantity_column(title: str, header: str, scale: Scale, values: Iterable[float]) -> SummaryColumn:
    """Return a column of numbers in the unit of a scale, which the title and the second line of the header name."""
    numbers = tuple(values)
    telling = scale.telling(numbers)
    return SummaryColumn(f"{title}, {scale.unit}", (header, scale.unit), tuple(map(telling.number, numbers)))


def time_column(rows: Sequence[PolicyResult]) -> SummaryColumn:
    """Return how long an iteration takes."""
    seconds = [row.metrics.iteration_s for row in rows]
    return quantity_column("time per iteration", "time", time_scale(seconds), seconds)


def rate_column(sample: Sample, rows: Sequence[PolicyResult]) -> SummaryColumn:
    """Return the throughput in images, or in what else the network reads."""
    rates = [row.metrics.images_per_s for row in rows]
    scale = rate_scale(rates).telling(rates)
    return SummaryColumn(per_second(sample), (sample.names, "per s"), tuple(scale.number(rate) for rate in rates))


def memory_column(rows: Sequence[PolicyResult]) -> SummaryColumn:
    """Return the most memory in use."""
    sizes = [row.metrics.max_memory_bytes for row in rows]
    return quantity_column("max memory", "max mem", byte_scale(sizes), sizes)


def offloaded_column(rows: Sequence[PolicyResult]) -> SummaryColumn:
    """Return what is offloaded in an iteration."""
    sizes = [row.metrics.offloaded_bytes for row in rows]
    return quantity_column("offloaded", "offload", byte_scale(sizes), sizes)


def speed_column(rows: Sequence[PolicyResult]) -> SummaryColumn:
    """Return the speed, of that of the oracular baseline."""
    return SummaryColumn("speed of the oracle", ("speed/", "oracle"), percents(row.performance_ratio for row in rows))
