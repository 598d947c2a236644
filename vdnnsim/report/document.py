"""What is to be said, apart from how it is shown: headings, prose, lists, tables and pictures in their order.

`report.terminal`, `report.markdown` and `report.html` show a document. Its texts are plain; `code` between backticks
and [links](to somewhere) are all that a text may hold beside words.
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
    """What follows, or what it asks; that of a whole document is of level 1."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Prose:
    """Paragraphs, with empty lines between them; `strong` is what a reader must not miss."""

    text: str
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """What a mark means, and other words of less weight."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Definitions:
    """Names, and what each of them means."""

    meanings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that lies beside the document, by its name; its title is what it says. A terminal has none."""

    title: str
    name: str


class Fold(Enum):
    """Where the cells of a column may be broken."""

    NEVER = auto()
    LABEL = auto()
    """As a name is: at its commas and underscores; a table always has its column of labels."""
    WORDS = auto()
    """Between words, though not between a number and its unit."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One column of a table, which two of the same title and cells are not.

    Attributes:
        unit: of its numbers, empty where cells have their own.
        header: what stands above it where there is little room, in its lines, or in one that may be broken.
        fold: where cells may be broken.
        from_right: whether it is set from the right, as numbers are.
    """

    title: str
    cells: tuple[str, ...]
    unit: str = ""
    header: str = ""
    fold: Fold = Fold.NEVER
    from_right: bool = True

    @property
    def full_title(self) -> str:
        """The title with the unit."""
        return f"{self.title}, {self.unit}" if self.unit else self.title

    @property
    def above(self) -> str:
        """What stands above it where there is little room."""
        return self.header or self.title


@dataclass(frozen=True, slots=True)
class Table:
    """A table; a page has all of it, a terminal as many of its columns as it has room for.

    Attributes:
        left_out_first: titles of what a terminal goes without, in this order; then goes what stands furthest right.
        has_all: where all columns are, in words.
        dim: whether each row is of less weight; none is if it is empty.
    """

    columns: tuple[Column, ...]
    left_out_first: tuple[str, ...] = ()
    has_all: str = ""
    dim: tuple[bool, ...] = ()

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """Its cells, row by row."""
        return tuple(zip(*(column.cells for column in self.columns), strict=True))


Block = Heading | Prose | Note | Bullets | Definitions | Picture | Table


@dataclass(frozen=True, slots=True)
class Document:
    """Blocks in their order."""

    blocks: tuple[Block, ...]


def section(title: str, lines: Sequence[str], level: int = 2) -> tuple[Block, ...]:
    """Return a heading and below it an item for each line; nothing where there is nothing to say."""
    return (Heading(title, level), Bullets(tuple(lines))) if lines else ()


def titled_table(title: str, table: Table | None, notes: Iterable[str], findings: Iterable[str]) -> Document:
    """Return a table with a line above it, and below it what its marks mean and what is to be known of it."""
    found = tuple(findings)
    return Document(
        (Heading(title), *(() if table is None else (table,)), *map(Note, notes), *((Bullets(found),) if found else ()))
    )


def text_column(title: str, cells: Iterable[str], fold: Fold = Fold.NEVER) -> Column:
    """Return a column that reads from the left."""
    return Column(title, tuple(cells), fold=fold, from_right=False)


def plain_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    has_all: str = "",
    left_out_first: Sequence[str] = (),
    left: int | None = None,
) -> Table:
    """Return a table whose first column, and one of policies, are labels.

    So many columns read from the left, those behind them from the right; by default what holds numbers alone does.
    """
    columns: list[Column] = []
    by_column = list(zip(*rows, strict=True)) or [()] * len(header)
    for number, (title, cells) in enumerate(zip(header, by_column, strict=True)):
        is_short = max(map(len, cells), default=0) <= _SHORT
        fold = Fold.LABEL if not number or title == "policy" else Fold.NEVER if is_short else Fold.WORDS
        are_numbers = any(cells) and all(_NUMBER.fullmatch(cell) for cell in cells if cell)
        columns.append(Column(title, cells, fold=fold, from_right=are_numbers if left is None else number >= left))
    return Table(tuple(columns), tuple(left_out_first), has_all)
