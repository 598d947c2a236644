"""The table on the terminal; whoever prints it brings the console, and imports this module late."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.report.comparison import FRONT, apart, comparison_columns, comparison_title
from vdnnsim.report.findings import caption, profiling, refusals, verdict
from vdnnsim.report.kernel_times import kernel_times
from vdnnsim.report.labels import fold_label
from vdnnsim.report.part_statistics import part_statistics
from vdnnsim.report.summary import FOOTNOTE, NOT_FITTING, summary
from vdnnsim.report.summary_columns import SummaryColumn
from vdnnsim.report.together import together

_LABEL_WIDTH = 12
"""Characters that labels may claim, as many as those of the vDNN paper's policies have."""

_GAP = 2
"""Characters between columns."""

_LEFT_OUT_FIRST = ("mean mem", "offload", "images", "stalled", "max mem", "speed/")
_LEFT_OUT_FIRST_COMPARED = ("offload", "images", "runtime", "rank by", "speed/", "rank")
"""Columns that a narrow terminal goes without, in this order, by the first line of their headers."""

_SHORT = 20
"""Characters up to which a column of a list is never folded."""


def result_table(result: ScenarioResult) -> RenderableType:
    """Return the results of a scenario: a caption, the table, what it says, and why rows do not fit."""
    columns = summary(result)
    unfit = next(column for column in columns if column.title == "fits").cells
    rows = _ResultRows(columns, tuple(cell != NOT_FITTING for cell in unfit), _LEFT_OUT_FIRST, "results.csv")
    lines: list[RenderableType] = [Text(caption(result), style="bold"), Padding(rows, (1, 0))]
    if not all(row.fits for row in result.results):
        lines.append(Text(FOOTNOTE, style="dim"))
    known = *kernel_times(result.kernels), *part_statistics(result)
    findings = verdict(result), *known, *together(result), *refusals(result), *profiling(result)
    lines.extend(_hanging(line) for line in findings)
    return Group(*lines)


def comparison_table(comparison: Comparison) -> RenderableType:
    """Return policies by rank: a caption, those that fit, what the mark means, and why the others do not."""
    lines: list[RenderableType] = [Text(caption(comparison.result), style="bold")]
    if comparison.standings:
        fits = (True,) * len(comparison.standings)
        rows = _ResultRows(comparison_columns(comparison), fits, _LEFT_OUT_FIRST_COMPARED, "compare.csv")
        lines.append(Padding(rows, (1, 0)))
        lines.append(
            Text(f"{FRONT} no other policy is better in time or memory and no worse in the other", style="dim")
        )
    result = comparison.result
    known = *kernel_times(result.kernels), *part_statistics(result)
    findings = comparison_title(comparison) + ".", *known, *apart(comparison)
    lines.extend(_hanging(line) for line in findings)
    return Group(*lines)


@dataclass(frozen=True, slots=True)
class _ResultRows:
    """The table, which has the columns that the width has room for; the labels it always has.

    Attributes:
        fits: whether each row fits.
        left_out_first: the columns that it can go without, by the first line of their headers.
        csv_name: the file that has all.
    """

    columns: tuple[SummaryColumn, ...]
    fits: tuple[bool, ...]
    left_out_first: tuple[str, ...]
    csv_name: str

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        columns, left_out = list(self.columns), []
        labels = next(column for column in columns if column.title == "policy")
        label_width = max(map(len, labels.cells))
        for name in self.left_out_first:
            if _others(columns, labels) + min(_LABEL_WIDTH, label_width) <= options.max_width:
                break
            dropped = next(column for column in columns if column.header[0] == name)
            columns.remove(dropped)
            left_out.append(dropped.title.partition(",")[0])
        room = max(options.max_width - _others(columns, labels), 1)
        folded = replace(labels, cells=tuple(fold_label(label, room) for label in labels.cells))
        columns[columns.index(labels)] = folded
        table = _table()
        for column in columns:
            table.add_column(
                Text("\n".join(column.header).strip()), justify="left" if column.is_text else "right", no_wrap=True
            )
        for cells, fits in zip(zip(*(column.cells for column in columns), strict=True), self.fits, strict=True):
            table.add_row(*(Text(cell) for cell in cells), style="" if fits else "dim")
        yield table
        if left_out:
            yield Text(f"too narrow for {', '.join(left_out)}; {self.csv_name} has all", style="dim")


def _others(columns: Sequence[SummaryColumn], labels: SummaryColumn) -> int:
    """Return the width of all columns but the labels."""
    others = [column for column in columns if column is not labels]
    return sum(_GAP + max(map(len, (*column.header, *column.cells))) for column in others)


def with_findings(table: RenderableType, findings: Iterable[str]) -> RenderableType:
    """Return a table and below it what is to be known of it."""
    return Group(table, *map(_hanging, findings))


def plain_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """Return a table of text cells, for commands that list things; what is short stays on one line."""
    table = _table()
    lines = list(rows)
    for number, name in enumerate(header):
        widest = max((len(row[number]) for row in lines), default=0)
        table.add_column(Text(name), overflow="fold", no_wrap=widest <= _SHORT)
    for row in lines:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))


def _hanging(line: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(Text("-"), Text(line, overflow="fold"))
    return grid
