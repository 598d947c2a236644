"""A picture of a study's rows, as its file asks for it, and the expressions of columns that it draws."""

import re
from dataclasses import dataclass
from enum import Enum

from vdnnsim.analysis.columns import Value

_SIGNS = re.compile(r"([*/])")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,2})?")


class PictureKind(Enum):
    """The form of a picture."""

    LINES = "lines"
    HEAT_MAP = "heat_map"
    PARETO = "pareto"


@dataclass(frozen=True, slots=True)
class Mark:
    """A named place on the horizontal axis, in SI."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class StudyPicture:
    """One picture of a study's rows, as its file asks for it.

    Attributes:
        name: stem of the file.
        title: what to see.
        subtitle: what all rows have in common; empty for what their columns say of it.
        x: a column, or an expression of columns and numbers; `y` as well.
        x_label: what the horizontal axis says; empty for what is known of the column.
        y_label: as `x_label`.
        value: the column in the cells of a heat map; empty for other kinds.
        by: the column that tells lines, points, or the winners of cells apart; empty for none.
        panels: the column that divides the picture; empty for none.
        where: for some columns, what a row may hold there to be shown.
    """

    name: str
    title: str
    kind: PictureKind
    x: str
    y: str
    subtitle: str = ""
    x_label: str = ""
    y_label: str = ""
    value: str = ""
    by: str = ""
    panels: str = ""
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of an expression: a column, or a number where that is not None."""

    column: str
    number: float | None
    divides: bool


def factors(expression: str) -> tuple[Factor, ...]:
    """Return the factors of products and quotients, from left to right."""
    found, divides = [], False
    for part in _SIGNS.split(expression):
        name = part.strip()
        if name in ("*", "/"):
            divides = name == "/"
            continue
        number = float(name) if _NUMBER.fullmatch(name) else None
        found.append(Factor(name, number, divides))
    return tuple(found)


def cell_text(value: Value | None) -> str:
    """Return a value as `where` compares it: true, false, text, or a number without decimals that are zero."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
