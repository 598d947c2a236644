"""Pictures of a study as its file describes them: which of its rows they draw, and what their axes are."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from vdnnsim.analysis.columns import COLUMNS, Value
from vdnnsim.errors import InputError
from vdnnsim.report.scale import Scale, percent, scale_of

_SIGNS = re.compile(r"([*/])")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,2})?")

StudyCells = Mapping[str, Value | None]
"""One point of a study: columns to values in SI, None where the point failed; `fits` is one of them."""

KERNEL_TIMES: Final = "kernel_times"
"""Cell of a row that is drawn: what its kernel times rest on, as `carried over`; empty where unknown."""

_LABELS: Final = {
    "link.bandwidth_bytes_per_s": "bandwidth of the host link, each way",
    "gpu.memory_bytes": "GPU memory",
    "gpu.compute_speed": "speed of the GPU against its own",
}
"""Of figures of a machine; other columns are results."""


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
    """One picture of a study's rows.

    Attributes:
        name: stem of the file.
        title: what to see.
        subtitle: what all rows have in common; empty for what their columns say of it.
        x: a column, or an expression of columns and numbers; `y` as well.
        x_label: what the horizontal axis says; empty for what is known of the column; `y_label` as well.
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
    first, *rest = (part.strip() for part in _SIGNS.split(expression))
    parts = [("*", first), *zip(rest[::2], rest[1::2], strict=True)]
    return tuple(Factor(name, float(name) if _NUMBER.fullmatch(name) else None, sign == "/") for sign, name in parts)


def cell_text(value: Value | None) -> str:
    """Return a value as `where` compares it: true, false, text, or a number without decimals that are zero."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def shows(picture: StudyPicture, row: StudyCells) -> bool:
    """Whether a picture shows a row: it has what `where` asks for, and numbers to show."""
    needed = [part.column for part in (*factors(picture.x), *factors(picture.y)) if part.number is None]
    needed += [picture.value] if picture.value else []
    asked = all(cell_text(row[column]) in values for column, values in picture.where)
    return asked and all(row[column] not in (None, "") for column in needed)


def shown_rows(rows: Sequence[StudyCells], picture: StudyPicture) -> list[StudyCells]:
    """Return the rows that a picture shows.

    Raises:
        InputError: there is none.
    """
    shown = [row for row in rows if shows(picture, row)]
    if not shown:
        conditions = [f"has {column} {' or '.join(values)}" for column, values in picture.where]
        asked = " and ".join([*conditions, "was computed without an error"])
        raise InputError(f"picture {picture.name!r}: found no row to draw, expected one that {asked}")
    return shown


def cell(row: StudyCells, expression: str) -> Value:
    """Return the value of a column of a row that is shown, or of an expression of columns and numbers.

    Raises:
        InputError: a factor is no number, or zero where it divides.
    """
    parts = factors(expression)
    if len(parts) == 1 and parts[0].number is None:
        value = row[expression]
        assert value is not None, "rows without a value are not shown"
        return value
    product = 1.0
    for part in parts:
        factor = cell(row, part.column) if part.number is None else part.number
        if isinstance(factor, str | bool) or (part.divides and factor == 0):
            raise InputError(f"{expression}: found {factor!r} for {part.column}, expected a number other than zero")
        product = product / factor if part.divides else product * factor
    return product


@dataclass(frozen=True, slots=True)
class StudyAxis:
    """One axis.

    Attributes:
        label: what it measures, with the unit.
        names: for a column of names, these in the order of the rows; empty for a quantity.
        scale: turns SI into the unit of the label.
    """

    label: str
    names: tuple[str, ...]
    scale: Scale

    def place(self, value: Value) -> float:
        """Return where a value of the column stands: its number in the unit, or the position of its name."""
        if self.names:
            return float(self.names.index(cell_text(value)))
        assert isinstance(value, int | float)
        return value / self.scale.factor

    def text(self, value: Value) -> str:
        """Return a value without its unit: shares with one decimal, 100 only for all of it; else three digits."""
        if self.names:
            return cell_text(value)
        number = self.place(value)
        if self.scale.unit == "%":
            assert isinstance(value, int | float)
            return percent(value).removesuffix(" %").replace("100.0", "100")
        return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def study_axis(column: str, values: Iterable[Value], label: str = "") -> StudyAxis:
    """Return the axis of a column that holds these values, whose label is given or found by its name."""
    found = list(values)
    numbers = [value for value in found if isinstance(value, int | float) and not isinstance(value, bool)]
    known = COLUMNS[column].label if column in COLUMNS else _LABELS.get(column, "")
    name = label or known or column.replace("_", " ")
    if len(numbers) < len(found):
        return StudyAxis(name, tuple(dict.fromkeys(map(cell_text, found))), Scale("", 1.0, 0))
    scale = scale_of(column, numbers) if len(factors(column)) == 1 else Scale("", 1.0, 2)
    unit = "" if scale.unit in ("", "%") else f", {scale.unit}"
    return StudyAxis(f"{name}{unit}", (), scale)


def best(column: str, values: Iterable[float]) -> float:
    """Return the best of the values of a column: most speed, least of anything else."""
    return max(values) if column.endswith(("_per_s", "_ratio")) else min(values)
