"""Pictures that a study asks for: selection of rows, expressions of columns, and axes."""

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
"""Cells of one point by column, in SI; None where the point failed."""

KERNEL_TIMES: Final = "kernel_times"
"""Column with the basis of kernel times, as `carried over`; empty where unknown."""

_LABELS: Final = {
    "link.bandwidth_bytes_per_s": "bandwidth of the host link, each way",
    "gpu.memory_bytes": "GPU memory",
    "gpu.compute_speed": "speed of the GPU against its own",
}
"""Axis labels of figures of a machine."""


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
    """One picture of a study.

    Attributes:
        subtitle: empty for what all rows have in common.
        x, y: columns, or expressions of columns and numbers.
        x_label, y_label: empty for the labels of the columns.
        value: column in the cells of a heat map; empty for other kinds.
        by: column of the series; empty for none.
        panels: column that divides the picture; empty for none.
        where: by column the values of rows that are shown.
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
    """A factor of an expression: a number, or a column where that is None."""

    column: str
    number: float | None
    divides: bool


def factors(expression: str) -> tuple[Factor, ...]:
    """Return the factors of an expression from left to right."""
    first, *rest = (part.strip() for part in _SIGNS.split(expression))
    parts = [("*", first), *zip(rest[::2], rest[1::2], strict=True)]
    return tuple(Factor(name, float(name) if _NUMBER.fullmatch(name) else None, sign == "/") for sign, name in parts)


def cell_text(value: Value | None) -> str:
    """Return a value as `where` compares it; whole numbers have no decimals."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def shows(picture: StudyPicture, row: StudyCells) -> bool:
    """Whether a row matches `where` and has the numbers that the picture needs."""
    needed = [part.column for part in (*factors(picture.x), *factors(picture.y)) if part.number is None]
    needed += [picture.value] if picture.value else []
    asked = all(cell_text(row[column]) in values for column, values in picture.where)
    return asked and all(row[column] not in (None, "") for column in needed)


def shown_rows(rows: Sequence[StudyCells], picture: StudyPicture) -> list[StudyCells]:
    """Return the rows that a picture shows, or raise InputError where there are none."""
    shown = [row for row in rows if shows(picture, row)]
    if not shown:
        conditions = [f"has {column} {' or '.join(values)}" for column, values in picture.where]
        asked = " and ".join([*conditions, "was computed without an error"])
        raise InputError(f"picture {picture.name!r}: found no row to draw, expected one that {asked}")
    return shown


def cell(row: StudyCells, expression: str) -> Value:
    """Return the value of a column or expression, or raise InputError for a factor that is no number or a divisor 0."""
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
    """An axis with its label and unit; `names` are those of a column of names, in order, empty for a quantity."""

    label: str
    names: tuple[str, ...]
    scale: Scale

    def place(self, value: Value) -> float:
        """Return the position of a value: its number in the unit, or the index of its name."""
        if self.names:
            return float(self.names.index(cell_text(value)))
        assert isinstance(value, int | float)
        return value / self.scale.factor

    def text(self, value: Value) -> str:
        """Return a value without its unit: percentages with one decimal, others with three digits."""
        if self.names:
            return cell_text(value)
        number = self.place(value)
        if self.scale.unit == "%":
            assert isinstance(value, int | float)
            return percent(value).removesuffix(" %").replace("100.0", "100")
        return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.3g}"

    def title(self, value: Value) -> str:
        """Return a value as the title of a panel: a quantity with its unit, this and a whole number with the label."""
        unit = self.scale.unit
        if self.names or not (unit or cell_text(value).isdigit()):
            return cell_text(value)
        return f"{self.label.removesuffix(f', {unit}')} {self.place(value):.9g} {unit}".rstrip()


def study_axis(column: str, values: Iterable[Value], label: str = "") -> StudyAxis:
    """Return the axis of a column with these values; its label is by default that of the column."""
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
    """Return the best value of a column: the highest speed, the least of anything else."""
    return max(values) if column.endswith(("_per_s", "_ratio")) else min(values)
