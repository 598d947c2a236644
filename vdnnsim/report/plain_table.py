"""A table of text that fits its terminal, for commands that list things."""

import re
from collections.abc import Iterable, Sequence

from vdnnsim.report.fitted_table import FittedTable, Fold, TableColumn

_SHORT = 20
"""Characters up to which the cells of a column are never broken."""

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


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
