"""Documents independent of their rendering: headings, prose, lists, tables and pictures in order.

`report.terminal`, `report.markdown` and `report.html` render a document. Its texts are plain, with `code` between
backticks and [links](https://...) as the only markup.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

_SHORT: Final = 20
"""Characters up to which the cells of a column are never broken."""
_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; level 1 is the title of a page."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Prose:
    """Paragraphs, separated by empty lines."""

    text: str
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A footnote or other minor text."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to copy, which are never wrapped."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Definitions:
    """Names and their meanings."""

    meanings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A file beside the document, with its title; a terminal shows none."""

    title: str
    name: str


class Fold(Enum):
    """Where cells of a column may be broken."""

    NEVER = auto()
    LABEL = auto()
    """At commas and underscores; a column of labels is never dropped."""
    WORDS = auto()
    """Between words, though not between a number and its unit."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        unit: of its numbers; empty where cells have their own.
        header: title for a terminal; a single line may be broken.
    """

    title: str
    cells: tuple[str, ...]
    unit: str = ""
    header: str = ""
    fold: Fold = Fold.NEVER
    from_right: bool = True

    @property
    def full_title(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title

    @property
    def above(self) -> str:
        """Title on a terminal."""
        return self.header or self.title


@dataclass(frozen=True, slots=True)
class Table:
    """A table; a page has all of its columns, a terminal as many as fit.

    Attributes:
        left_out_first: titles of columns that a terminal drops first, in this order; then the rightmost.
        folded: titles of columns whose cells stand below their row where they would be dropped.
        has_all: where all columns are, in words.
    """

    columns: tuple[Column, ...]
    left_out_first: tuple[str, ...] = ()
    has_all: str = ""
    dim: tuple[bool, ...] = ()
    folded: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        return tuple(zip(*(column.cells for column in self.columns), strict=True))


Block = Heading | Prose | Note | Code | Bullets | Definitions | Picture | Table


@dataclass(frozen=True, slots=True)
class Document:
    """Blocks in order."""

    blocks: tuple[Block, ...]


def section(title: str, lines: Sequence[str]) -> tuple[Block, ...]:
    """Return a heading with a list of lines; nothing without lines."""
    return (Heading(title), Bullets(tuple(lines))) if lines else ()


def titled_table(title: str, table: Table | None, notes: Iterable[str], findings: Iterable[str]) -> Document:
    found = tuple(findings)
    return Document(
        (Heading(title), *(() if table is None else (table,)), *map(Note, notes), *((Bullets(found),) if found else ()))
    )


def text_column(title: str, cells: Iterable[str], fold: Fold = Fold.NEVER) -> Column:
    return Column(title, tuple(cells), fold=fold, from_right=False)


def plain_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    has_all: str = "",
    left_out_first: Sequence[str] = (),
    left: int | None = None,
    folded: Sequence[str] = (),
) -> Table:
    """Return a table whose first column, and one of policies, are labels.

    The first `left` columns are aligned left; by default all but those of numbers. `folded` are as of a `Table`.
    """
    columns: list[Column] = []
    by_column = list(zip(*rows, strict=True)) or [()] * len(header)
    for number, (title, cells) in enumerate(zip(header, by_column, strict=True)):
        is_short = max(map(len, cells), default=0) <= _SHORT
        fold = Fold.LABEL if not number or title == "policy" else Fold.NEVER if is_short else Fold.WORDS
        are_numbers = any(cells) and all(_NUMBER.fullmatch(cell) for cell in cells if cell)
        columns.append(Column(title, cells, fold=fold, from_right=are_numbers if left is None else number >= left))
    return Table(tuple(columns), tuple(left_out_first), has_all, folded=tuple(folded))
