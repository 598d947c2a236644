"""Tables of results: numbers as CSV, JSON and pandas DataFrame, and text; objects that are shown as text."""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vdnnsim.analysis.columns import Row, Value
from vdnnsim.files.atomic import replace_file
from vdnnsim.files.csv_table import table_text

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console, RenderableType

    from vdnnsim.report.document import Document, Table


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Value | None]]) -> str:
    """Return a table as CSV text; floats are written without loss, None as an empty cell.

    Raises:
        ValueError: a row is longer or shorter than the header.
    """
    return table_text(header, [[_cell(value) for _, value in zip(header, row, strict=True)] for row in rows])


def attributes_csv(columns: Mapping[str, str], things: Iterable[object]) -> str:
    """Return things as CSV text; `columns` has by name the attribute, as `row.setup.network`."""
    return csv_text(tuple(columns), map(attrgetter(*columns.values()), things))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Value | None]]) -> None:
    """Write a table to a file, whole or not at all, or raise OutputError."""
    replace_file(path, csv_text(header, rows).encode())


def _cell(value: Value | None) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value)
        case _:
            return str(value)


WIDTH: Final = 100
"""Characters of a table in a notebook."""
_HTML: Final = '<pre style="line-height: 1.3; font-family: monospace">{code}</pre>'


class Shown:
    """An object whose text is its representation, in notebooks too: that of dataclasses has megabytes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return _HTML.format(code=html.escape(str(self)))


@dataclass(frozen=True, slots=True, repr=False)
class ResultTable(Shown):
    """Results as numbers and as text.

    Attributes:
        columns: names of the numbers, each ending in its SI unit.
        cells: the numbers by row; an empty text where there is none.
        shown: what is printed.
    """

    columns: Sequence[str]
    cells: Sequence[Row]
    shown: "Document | Table | RenderableType"

    def to_csv(self) -> str:
        """Return the numbers as CSV."""
        return csv_text(self.columns, self.cells)

    def to_json(self) -> str:
        """Return the numbers as JSON, a mapping for each row; null is an empty cell."""
        return json.dumps(self._mappings(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_pandas(self) -> "DataFrame":
        """Return the numbers as a pandas DataFrame, in the SI units in which their names end.

        Columns are those of CSV and JSON; rates are `samples_per_s`, of images or sequences.
        """
        from pandas import DataFrame

        return DataFrame(self._mappings(), columns=list(self.columns))

    def __str__(self) -> str:
        from vdnnsim.report.terminal import unpadded

        return unpadded(self._printed().export_text()).rstrip()

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return self._printed().export_html(inline_styles=True, code_format=_HTML)

    def _printed(self) -> "Console":
        from rich.console import Console

        from vdnnsim.report.terminal import rendered

        # In a notebook rich would also display what is printed.
        console = Console(file=StringIO(), width=WIDTH, highlight=False, record=True, force_jupyter=False)
        # Lines of code are copied.
        console.print(rendered(self.shown), crop=False)
        return console

    def _mappings(self) -> list[dict[str, Value | None]]:
        numbers = ([None if cell == "" else cell for cell in row] for row in self.cells)
        return [dict(zip(self.columns, row, strict=True)) for row in numbers]
