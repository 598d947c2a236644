"""A table that fits its terminal: no number is cut, what there is no room for is left out and named below."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from vdnnsim.report.labels import fold_label

_LABEL_WIDTH = 12
"""Characters that labels may claim, as many as those of the vDNN paper's policies have."""

_LABELS_FIRST = 20
"""Characters up to which labels are served before others get more than they need."""

_TEXT_WIDTH = 16
_LONGEST_WORD = 24
"""Characters that running text may claim, and up to how many a word of it may that is not broken."""

_GAP = 2
"""Characters between columns."""

_PIECE = re.compile(r"[^ _/]+[ _/]*")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGT]i)?B\b|[kMGT]?B/s\b|[mun]?s\b|%)")
_HARD_BLANK = "\N{NO-BREAK SPACE}"


_SHORT = 20
"""Characters up to which the cells of a column are never broken."""
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


class Fold(Enum):
    """Where the cells of a column may be broken."""

    NEVER = auto()
    LABEL = auto()
    """As a name is: at its commas and underscores; a table always has its column of labels."""
    WORDS = auto()
    """Between words, though not between a number and its unit."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column.

    Attributes:
        title: what the line that names what is left out calls it.
        header: what stands above it, in its lines; a single line may be broken between words.
        fold: where cells may be broken.
        from_right: whether it is set from the right, as numbers are.
    """

    title: str
    header: str
    cells: tuple[str, ...]
    fold: Fold = Fold.NEVER
    from_right: bool = False

    @property
    def widest(self) -> int:
        """Characters that it takes on one line."""
        return max(map(len, (*self.header.split("\n"), *self.cells)))

    @property
    def narrowest(self) -> int:
        """Characters with which it is not worth reading if it has fewer."""
        pieces = self.header.split("\n") if "\n" in self.header else _PIECE.findall(self.header)
        header = max((len(piece.rstrip()) for piece in pieces), default=0)
        cells = max(map(len, self.cells), default=0)
        match self.fold:
            case Fold.NEVER:
                return max(header, cells)
            case Fold.LABEL:
                return min(self.widest, _LABEL_WIDTH)
            case Fold.WORDS:
                words = max((len(word) for cell in self.cells for word in _words(cell)), default=0)
                return min(self.widest, max(header, _TEXT_WIDTH, min(words, _LONGEST_WORD)))

    def folded(self, cell: str, width: int) -> str:
        """Return one of its cells in lines of at most so many characters."""
        if self.fold is Fold.LABEL:
            return fold_label(cell, width)
        if self.fold is Fold.WORDS:
            whole = _BEFORE_UNIT.sub(_HARD_BLANK, cell)
            lines = textwrap.wrap(whole, width, break_on_hyphens=False, break_long_words=False)
            return "\n".join(fold_label(line, width) for line in lines).replace(_HARD_BLANK, " ")
        return cell

    def folded_header(self, width: int) -> str:
        """Return what stands above it."""
        return self.header if "\n" in self.header else fold_label(self.header, width)


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table with as many of its columns as the width has room for.

    Attributes:
        columns: all of them, one of them or several of labels.
        left_out_first: titles of what it goes without, in this order; then goes what stands furthest right. Of columns
            of one title the right one goes first.
        has_all: where all columns are, in words.
        dim: whether each row is of less weight; none is if it is empty.
    """

    columns: tuple[TableColumn, ...]
    left_out_first: tuple[str, ...]
    has_all: str
    dim: tuple[bool, ...] = ()

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        kept = self._kept(options.max_width)
        widths = _widths(kept, options.max_width)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        for column, width in zip(kept, widths, strict=True):
            header = Text(column.folded_header(width))
            table.add_column(header, justify="right" if column.from_right else "left", no_wrap=True)
        for row, cells in enumerate(zip(*(column.cells for column in kept), strict=True)):
            folded = (Text(column.folded(cell, width)) for column, cell, width in zip(kept, cells, widths, strict=True))
            table.add_row(*folded, style="dim" if self.dim and self.dim[row] else "")
        yield table
        left_out = [column.title for column in self._by_weight() if not _has(kept, column)]
        if left_out:
            names = ", ".join(dict.fromkeys(filter(None, left_out)))
            yield Text(f"too narrow for {names}; {self.has_all}", style="dim")

    def _kept(self, width: int) -> list[TableColumn]:
        """Return the columns that there is room for, in their order."""
        kept, order = list(self.columns), self._by_weight()
        gone: list[TableColumn] = []
        for column in order:
            if _least(kept) <= width:
                break
            kept = [each for each in kept if each is not column]
            gone.append(column)
        for column in reversed(gone):
            more = [each for each in self.columns if each is column or _has(kept, each)]
            if _least(more) <= width:
                kept = more
        return kept

    def _by_weight(self) -> list[TableColumn]:
        """Return what may be left out, what matters least first."""
        rest = [column for column in reversed(self.columns) if column.fold is not Fold.LABEL]
        order: list[TableColumn] = []
        for title in self.left_out_first:
            column = next(each for each in rest if each.title == title)
            rest = [each for each in rest if each is not column]
            order.append(column)
        return [*order, *rest]


def _has(columns: Sequence[TableColumn], column: TableColumn) -> bool:
    return any(each is column for each in columns)


def _least(columns: Sequence[TableColumn]) -> int:
    return sum(column.narrowest for column in columns) + _GAP * (len(columns) - 1)


def _widths(columns: Sequence[TableColumn], room: int) -> list[int]:
    """Return the width of each column: what it takes, or as much as others get for which there is too little room."""
    if len(columns) == 1:
        return [min(columns[0].widest, room)]
    room -= _GAP * (len(columns) - 1)
    widths = [column.narrowest for column in columns]
    labels = [min(column.widest, _LABELS_FIRST) if column.fold is Fold.LABEL else 0 for column in columns]
    for wanted in (labels, [column.widest for column in columns]):
        least = widths
        for level in range(room + 1):
            wider = [max(width, min(want, level)) for width, want in zip(least, wanted, strict=True)]
            if sum(wider) > room:
                break
            widths = wider
    return widths


def _words(text: str) -> list[str]:
    return _BEFORE_UNIT.sub(_HARD_BLANK, text).split(" ")


def plain_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], has_all: str, left_out_first: Sequence[str] = ()
) -> FittedTable:
    """Return a table whose first column names the rows, and one of policies too.

    Args:
        header: title of each column, which a narrow terminal breaks at blanks and underscores.
        rows: their cells.
        has_all: where a reader finds all columns, in words.
        left_out_first: what a narrow terminal goes without, in this order; then goes what stands furthest right.
    """
    cells = list(zip(*rows, strict=True)) or [()] * len(header)
    columns = (
        TableColumn(
            title,
            title,
            column,
            Fold.LABEL
            if not number or title == "policy"
            else Fold.NEVER
            if max(map(len, column), default=0) <= _SHORT
            else Fold.WORDS,
            from_right=any(column) and all(_NUMBER.fullmatch(cell) for cell in column if cell),
        )
        for number, (title, column) in enumerate(zip(header, cells, strict=True))
    )
    return FittedTable(tuple(columns), tuple(left_out_first), has_all)
