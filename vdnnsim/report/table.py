"""The table on the terminal; whoever prints it brings the console, and imports this module late."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.report.findings import caption, profiling, refusals, verdict
from vdnnsim.report.summary import FOOTNOTE, summary

_LABEL_WIDTH = 12
"""Characters that any column may claim, as many as the labels of the vDNN paper's policies have."""

_SHORT = 20
"""Characters up to which a column of a list is never folded."""


def result_table(result: ScenarioResult) -> RenderableType:
    """Return the results of a scenario: a caption, the table, what it says, and why rows do not fit."""
    table = _table()
    columns = summary(result)
    for number, column in enumerate(columns):
        table.add_column(
            Text("\n".join(column.header).strip()),
            justify="left" if number < 2 else "right",
            overflow="fold",
            # A long label is folded before a number is.
            no_wrap=number > 0,
            min_width=min(_LABEL_WIDTH, max(map(len, column.cells))),
        )
    for row, cells in zip(result.results, zip(*(column.cells for column in columns), strict=True), strict=True):
        table.add_row(*(Text(cell) for cell in cells), style="" if row.fits else "dim")
    lines: list[RenderableType] = [Text(caption(result), style="bold"), Padding(table, (1, 0))]
    if not all(row.fits for row in result.results):
        lines.append(Text(FOOTNOTE, style="dim"))
    lines.extend(_hanging(line) for line in (verdict(result), *refusals(result), *profiling(result)))
    return Group(*lines)


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
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def _hanging(line: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(Text("-"), Text(line, overflow="fold"))
    return grid
