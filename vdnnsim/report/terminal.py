"""Rendering of documents on a terminal by rich.

Tables fit the width: numbers are never cut, and columns that do not fit are folded below labels, or dropped and named
below. Pictures are left out.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from vdnnsim.report.document import (
    Block,
    Bullets,
    Code,
    Column,
    Definitions,
    Document,
    Fold,
    Heading,
    Note,
    Prose,
    Table,
)
from vdnnsim.report.labels import fold_label

_LABEL_WIDTH: Final = 14
"""Least width of a column of labels: `save_on_cpu(p)`, and all policies of the vDNN paper."""
_LABELS_FIRST: Final = 20
"""Width up to which labels are served before other columns get more than their least."""
_TEXT_WIDTH: Final = 16
"""Least width of a column of text."""
_LONGEST_WORD: Final = 24
"""Longer words are broken."""
_GAP: Final = 2
"""Characters between columns."""
_PIECE: Final = re.compile(r"[^ _/]+[ _/]*")
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=(?:[KMGT]i)?B\b|[kMGT]?B/s\b|[mun]?s\b|%)")
_HARD_BLANK: Final = "\N{NO-BREAK SPACE}"


def rendered(shown: Document | Table | RenderableType) -> RenderableType:
    """Return a document or a table as rich prints it; anything else as it is."""
    if isinstance(shown, Table):
        return FittedTable(shown)
    if not isinstance(shown, Document):
        return shown
    parts = [part for block in shown.blocks for part in _parts(block)]
    # A heading at the top has no empty line above it.
    return Group(*(parts[1:] if shown.blocks and isinstance(shown.blocks[0], Heading) else parts))


def unpadded(text: str) -> str:
    """Return lines without the blanks with which rich fills them."""
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def _parts(block: Block) -> Sequence[RenderableType]:
    match block:
        case Heading(text=text):
            return "", Text(text, style="bold")
        case Prose(text=text, strong=strong):
            return (Text(text, style="bold" if strong else ""),)
        case Note(text=text):
            return (Text(text, style="dim"),)
        case Code(text=text):
            return (Text(text, style="cyan", no_wrap=True, overflow="ignore"),)
        case Bullets(items=items):
            return tuple(map(_hanging, items))
        case Definitions(meanings=meanings):
            return tuple(_hanging(f"{name}: {meaning}") for name, meaning in meanings)
        case Table():
            return (Padding(FittedTable(block), (1, 0)),)
        case _:
            return ()


def _hanging(line: str) -> RenderableType:
    grid = Grid.grid(padding=(0, 1, 0, 0))
    grid.add_row(Text("-"), Text(line, overflow="fold"))
    return grid


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table with as many columns as fit the width."""

    table: Table

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        kept = self._kept(options.max_width)
        widths = _widths(kept, options.max_width)
        below = [each for each in self.table.columns if each not in kept and each.title in self.table.folded]
        same = [each for each in below if _is_same(each)]
        folded = [each for each in below if each not in same]
        rows = [*zip(*(column.cells for column in kept), strict=True)]
        # With lines below it each row is a grid of its own, as wide as the others.
        grid = _grid(kept, widths, is_fixed=bool(folded))
        for row, cells in enumerate(rows):
            if folded and row:
                grid = _grid(kept, widths, is_fixed=True)
                grid.show_header = False
            style = "dim" if self.table.dim and self.table.dim[row] else ""
            grid.add_row(*map(Text, map(_folded, kept, cells, widths)), style=style)
            if folded:
                yield grid
                yield from (Text(line, style=style) for line in _below(folded, row, options.max_width))
        if not folded:
            yield grid
        if same:
            yield from map(Text, ("in every row:", *_below(same, 0, options.max_width)))
        left_out = dict.fromkeys(column.title for column in self._by_weight() if column not in (*kept, *below))
        if left_out:
            yield Text(f"not shown: {', '.join(filter(None, left_out))}; {self.table.has_all}", style="dim")

    def _kept(self, width: int) -> list[Column]:
        kept = list(self.table.columns)
        gone: list[Column] = []
        for column in self._by_weight():
            if _least(kept) <= width:
                break
            kept.remove(column)
            gone.append(column)
        for column in reversed(gone):
            more = [each for each in self.table.columns if each is column or each in kept]
            if _least(more) <= width:
                kept = more
        return kept

    def _by_weight(self) -> list[Column]:
        """Return the columns that may be dropped, the least important first.

        Of those that are folded, the ones whose cells are all the same go before the others, for they take one line.
        """
        rest = [column for column in reversed(self.table.columns) if column.fold is not Fold.LABEL]
        order: list[Column] = []
        for title in self.table.left_out_first:
            order.append(next(each for each in rest if each.title == title))
            rest.remove(order[-1])
        return sorted(order, key=lambda each: not (each.title in self.table.folded and _is_same(each))) + rest


def _is_same(column: Column) -> bool:
    """Return whether several rows have the same cell."""
    return len(column.cells) > 1 == len(set(column.cells))


def _widest(column: Column) -> int:
    return max(map(len, (*column.above.split("\n"), *column.cells)))


def _narrowest(column: Column) -> int:
    pieces = column.above.split("\n") if "\n" in column.above else _PIECE.findall(column.above)
    above = max((len(piece.rstrip()) for piece in pieces), default=0)
    match column.fold:
        case Fold.NEVER:
            return max(above, *map(len, column.cells), 0)
        case Fold.LABEL:
            return min(_widest(column), _LABEL_WIDTH)
        case Fold.WORDS:
            cells = (_BEFORE_UNIT.sub(_HARD_BLANK, cell).split(" ") for cell in column.cells)
            words = max((len(word) for cell in cells for word in cell), default=0)
            return min(_widest(column), max(above, _TEXT_WIDTH, min(words, _LONGEST_WORD)))


def _folded(column: Column, cell: str, width: int) -> str:
    match column.fold:
        case Fold.NEVER:
            return cell
        case Fold.LABEL:
            return fold_label(cell, width)
        case Fold.WORDS:
            whole = _BEFORE_UNIT.sub(_HARD_BLANK, cell)
            lines = textwrap.wrap(whole, width, break_on_hyphens=False, break_long_words=False)
            return "\n".join(fold_label(line, width) for line in lines).replace(_HARD_BLANK, " ")


def _grid(columns: Sequence[Column], widths: Sequence[int], *, is_fixed: bool) -> Grid:
    """Return a grid without rows; fixed, its columns have these widths whatever is in them."""
    grid = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        above = column.above if "\n" in column.above else fold_label(column.above, width)
        grid.add_column(
            Text(above),
            justify="right" if column.from_right else "left",
            no_wrap=True,
            width=max(width, *map(len, above.split("\n"))) if is_fixed else None,
        )
    return grid


def _below(columns: Sequence[Column], row: int, width: int) -> list[str]:
    """Return the cells of columns in a row as lines with their titles and units."""
    cells = [(f"{each.title}:", each.cells[row], each.unit) for each in columns if each.cells[row]]
    texts = (_BEFORE_UNIT.sub(_HARD_BLANK, " ".join(filter(None, cell))) for cell in cells)
    room = max(1, width - 2)
    lines = textwrap.wrap("; ".join(texts), room, break_on_hyphens=False, break_long_words=False)
    folded = (part for line in lines for part in fold_label(line, room).split("\n"))
    return [f"  {line.replace(_HARD_BLANK, ' ')}" for line in folded]


def _least(columns: Sequence[Column]) -> int:
    return sum(map(_narrowest, columns)) + _GAP * (len(columns) - 1)


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """Return the width of each column: what it needs, or an equal share of what is left."""
    if len(columns) == 1:
        return [min(_widest(columns[0]), room)]
    room -= _GAP * (len(columns) - 1)
    widths = list(map(_narrowest, columns))
    labels = [min(_widest(column), _LABELS_FIRST) if column.fold is Fold.LABEL else 0 for column in columns]
    for wanted in (labels, list(map(_widest, columns))):
        least = widths
        for level in range(room + 1):
            wider = [max(width, min(want, level)) for width, want in zip(least, wanted, strict=True)]
            if sum(wider) > room:
                break
            widths = wider
    return widths
