r"""CSV, for results and for every table that is printed: comma, quotes where needed, \n at line ends, UTF-8."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from vdnnsim.analysis.columns import Value
from vdnnsim.files.atomic import replace_file
from vdnnsim.files.csv_table import table_text


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Value | None]]) -> str:
    """Return a table as CSV text, without loss: reading a float back gives the same float; None is an empty cell.

    Raises:
        ValueError: a row is longer or shorter than the header.
    """
    return table_text(header, [[_cell(value) for _, value in zip(header, row, strict=True)] for row in rows])


def attributes_csv(columns: Mapping[str, str], things: Iterable[object]) -> str:
    """Return things as CSV text, a row each: by name of a column the attribute that it shows, `row.setup.network`."""
    return csv_text(tuple(columns), map(attrgetter(*columns.values()), things))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Value | None]]) -> None:
    """Write a table to a file, whole or not at all.

    Raises:
        OutputError: the file cannot be written.
    """
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
