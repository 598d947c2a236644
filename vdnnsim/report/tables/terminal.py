"""The table on the terminal; whoever prints it brings the console, and imports this module late."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vdnnsim.analysis.columns import COLUMNS
from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.samples import sample_of
from vdnnsim.report.budgets import budgets
from vdnnsim.report.caveats import (
    capture_lines,
    contention_lines,
    glossary,
    kernel_times,
    part_statistics,
    remarks,
    without_plan,
)
from vdnnsim.report.certificates import certificates
from vdnnsim.report.findings import caption, conclusions, refusals
from vdnnsim.report.scale import per_second
from vdnnsim.report.tables.comparison import FRONT, comparison_columns, comparison_title, unranked
from vdnnsim.report.tables.fitted import FittedTable, Fold, TableColumn
from vdnnsim.report.tables.summary import FOOTNOTE, NOT_FITTING, SummaryColumn, summary
from vdnnsim.report.trials import profiling

_LEFT_OUT_FIRST = (
    "mean_memory_bytes",
    "offloaded_bytes",
    "images_per_s",
    "stall_s",
    "max_memory_bytes",
    "performance_ratio",
)
_LEFT_OUT_FIRST_COMPARED = (
    "offloaded_bytes",
    "images_per_s",
    "runtime_bytes",
    "rank by memory",
    "performance_ratio",
    "rank",
)
"""Columns that a narrow terminal goes without, in this order."""


def result_table(result: ScenarioResult) -> RenderableType:
    """Return the results of a scenario: a caption, the table, what it says, and why rows do not fit."""
    columns = summary(result)
    unfit = next(column for column in columns if column.title == "fits").cells
    rows = _rows(columns, _titles(_LEFT_OUT_FIRST, result), "results.csv", (cell == NOT_FITTING for cell in unfit))
    lines: list[RenderableType] = [Text(caption(result), style="bold"), *_dim(remarks(result.workload)), rows]
    lines += _dim(glossary(row.policy for row in result.slowest))
    if not all(row.fits for row in result.results):
        lines.append(Text(FOOTNOTE, style="dim"))
    known = *kernel_times(result.kernels), *capture_lines(result.captured), *part_statistics(result)
    said = *conclusions(result), budgets(result), *certificates(result)
    findings = *said, *known, *contention_lines(result), *refusals(result), *without_plan(result), *profiling(result)
    lines.extend(_hanging(line) for line in findings)
    if result.advice:
        lines += [Text("What would make it fit?", style="bold"), *map(_hanging, result.advice)]
    return Group(*lines)


def comparison_table(comparison: Comparison) -> RenderableType:
    """Return policies by rank: a caption, those that fit, what the mark means, and why the others do not."""
    result = comparison.result
    lines: list[RenderableType] = [Text(caption(result), style="bold"), *_dim(remarks(result.workload))]
    if comparison.standings:
        left_out_first = _titles(_LEFT_OUT_FIRST_COMPARED, result)
        lines.append(_rows(comparison_columns(comparison), left_out_first, "compare.csv"))
        lines += _dim(glossary(row.policy for row in result.slowest))
        lines.append(
            Text(f"{FRONT} no other policy is better in time or memory and no worse in the other", style="dim")
        )
    known = *kernel_times(result.kernels), *capture_lines(result.captured), *part_statistics(result)
    findings = comparison_title(comparison) + ".", *known, *unranked(comparison)
    lines.extend(_hanging(line) for line in findings)
    return Group(*lines)


def _dim(texts: Iterable[str]) -> list[RenderableType]:
    return [Text(text, style="dim") for text in texts]


def _titles(columns: tuple[str, ...], result: ScenarioResult) -> tuple[str, ...]:
    """Return what stands above columns; above the throughput what is read, where these are no images."""
    rate = per_second(sample_of(result.workload.graph))
    titles = {name: column.title for name, column in COLUMNS.items()} | {"images_per_s": rate}
    return tuple(titles.get(column, column) for column in columns)


def _rows(
    columns: Iterable[SummaryColumn], left_out_first: tuple[str, ...], csv_name: str, dim: Iterable[bool] = ()
) -> RenderableType:
    fitted = (
        TableColumn(
            _name(column),
            "\n".join(column.header).strip(),
            column.cells,
            Fold.LABEL if column.title == "policy" else Fold.NEVER,
            from_right=not column.is_text,
        )
        for column in columns
    )
    return Padding(FittedTable(tuple(fitted), left_out_first, f"{csv_name} has all", tuple(dim)), (1, 0))


def _name(column: SummaryColumn) -> str:
    return column.title.partition(",")[0]


def titled_table(title: str, table: RenderableType, notes: Iterable[str], findings: Iterable[str]) -> RenderableType:
    """Return a table with a line above it, and below it what its marks mean and what is to be known of it."""
    return Group(
        Text(title, style="bold"),
        Padding(table, (1, 0)),
        *(Text(note, style="dim") for note in notes),
        *map(_hanging, findings),
    )


def _hanging(line: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(Text("-"), Text(line, overflow="fold"))
    return grid
