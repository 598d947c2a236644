"""Strict reading of CSV tables in UTF-8 with a header; errors name file, line, column and the expectation."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from vdnnsim.errors import ProfileError
from vdnnsim.files.messages import file_name, not_one_of, one_line, quote
from vdnnsim.files.regular import UnreadableError, read_regular_file
from vdnnsim.files.value import LONGEST_TEXT

Choice = TypeVar("Choice", bound=Enum)
Row = TypeVar("Row")
Lines: TypeAlias = Iterator[tuple[int, Sequence[str]]]
"""Rows with the number of their line."""

MOST_ROWS: Final = 100_000
_LARGEST_BYTES: Final = 64 * 2**20
_COUNT = re.compile(r"0|[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


class Limits(Protocol):
    """The least and the largest number of a cell, and both as text."""

    @property
    def low(self) -> float: ...  # as above

    @property
    def high(self) -> float: ...

    @property
    def shown(self) -> str: ...


class WrongCellError(Exception):
    """A wrong cell; the message lacks file and line."""


def table_text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a table as CSV text, \n at line ends."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def read_table(path: Path) -> bytes:
    """Return the content of a file with a table, or raise ProfileError where it cannot be read, or exceeds 64 MiB."""
    try:
        return read_regular_file(path, _LARGEST_BYTES, "expected a table as `vdnnsim calibrate` writes it")
    except UnreadableError as failure:
        raise ProfileError(f"{file_name(path)}: {failure}") from failure


def parse_table(
    path: Path, data: bytes, columns: Sequence[str], parse: Callable[[Lines], Iterable[Row]]
) -> tuple[Row, ...]:
    """Return the rows of a table.

    `parse` yields a row for each line, or raises WrongCellError before it takes the next.

    Raises:
        ProfileError: the table is wrong; the message names the line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        raise ProfileError(f"{file_name(path)}: line {line}: byte {failure.start} is not UTF-8") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)

    def lines() -> Lines:
        for number, cells in enumerate(reader):
            if len(cells) != len(columns):
                raise WrongCellError(f"found {len(cells)} cells, expected {len(columns)}")
            if number == MOST_ROWS:
                raise WrongCellError(f"found more than {MOST_ROWS} rows")
            yield reader.line_num, cells
        if reader.line_num < 2:
            raise WrongCellError("found no row, expected at least one")

    try:
        _check_header(next(reader, []), columns)
        return tuple(parse(lines()))
    except WrongCellError as wrong:
        raise ProfileError(f"{file_name(path)}: line {max(reader.line_num, 1)}: {wrong}") from None
    except csv.Error as wrong:
        raise ProfileError(f"{file_name(path)}: line {reader.line_num}: is not CSV: {one_line(str(wrong))}") from None


def _check_header(header: Sequence[str], columns: Sequence[str]) -> None:
    if tuple(header) == tuple(columns):
        return
    for column in header:
        if column not in columns:
            raise WrongCellError(not_one_of(column, columns, "a column"))
    found = one_line(",".join(header))[:LONGEST_TEXT]
    raise WrongCellError(f"found the columns {found!r}, expected {','.join(columns)}")


def text_cell(column: str, cell: str, *, optional: bool = False) -> str:
    """Return printable text, empty only if it is optional."""
    if not cell and optional:
        return ""
    if not cell or not cell.isprintable() or len(cell) > LONGEST_TEXT:
        raise WrongCellError(f"{column}: found {quote(cell)}, expected 1 to {LONGEST_TEXT} printable characters")
    return cell


def choice_cell(column: str, cell: str, choices: type[Choice]) -> Choice:
    try:
        return choices(cell)
    except ValueError:
        names = [str(choice.value) for choice in choices]
        raise WrongCellError(f"{column}: {not_one_of(cell, names, 'known')}") from None


def count_cell(column: str, cell: str, limits: Limits) -> int:
    if not _COUNT.fullmatch(cell) or not limits.low <= int(cell) <= limits.high:
        raise WrongCellError(f"{column}: found {quote(cell)}, expected a whole number from {limits.shown}")
    return int(cell)


def number_cell(column: str, cell: str, limits: Limits) -> float:
    if not _NUMBER.fullmatch(cell) or not limits.low <= float(cell) <= limits.high:
        raise WrongCellError(f"{column}: found {quote(cell)}, expected a number from {limits.shown}")
    return float(cell)
