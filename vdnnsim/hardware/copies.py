"""Measured times of copies between host and device: a CSV file beside the profile of a machine.

    direction,host_memory,beside,copied_bytes,time_s,spread_fraction,timed_runs,note
    h2d,pinned,,4096,1.1e-05,0.01,20,

`beside` is concurrent work, empty for a copy alone; `note` says why a time is not to be used. All other times of pinned
copies alone make a curve by size for each direction, by which copies of a plan are timed (`vdnnsim.cost.transfer`). One
size makes no curve.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from vdnnsim.files.csv_table import (
    Lines,
    WrongCellError,
    choice_cell,
    count_cell,
    number_cell,
    parse_table,
    table_text,
    text_cell,
)
from vdnnsim.hardware.stated_figure import MEASURED_TIME, MOVED_BYTES, RUNS, SPREAD

_FEWEST_POINTS: Final = 2

Curve: TypeAlias = tuple[tuple[int, float], ...]
"""Bytes of copies and their seconds, by size; empty without measurements."""


class Direction(Enum):
    """Direction of a copy: from the host to the GPU (prefetch) or back (offload)."""

    H2D = "h2d"
    D2H = "d2h"


class HostMemory(Enum):
    """Kind of host memory of a copy."""

    PINNED = "pinned"
    PAGEABLE = "pageable"


@dataclass(frozen=True, slots=True)
class CopyRow:
    """One kind of copy of one size, as measured.

    Attributes:
        beside: concurrent work; empty for a copy alone.
        seconds: the median.
        spread: (third quartile - first quartile) / median of the runs.
        note: empty, or why the time is not to be used.
    """

    direction: Direction
    host_memory: HostMemory
    beside: str
    nbytes: int
    seconds: float
    spread: float
    count: int
    note: str


_COLUMNS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "direction": partial(choice_cell, choices=Direction),
    "host_memory": partial(choice_cell, choices=HostMemory),
    "beside": partial(text_cell, optional=True),
    "copied_bytes": partial(count_cell, limits=MOVED_BYTES),
    "time_s": partial(number_cell, limits=MEASURED_TIME),
    "spread_fraction": partial(number_cell, limits=SPREAD),
    "timed_runs": partial(count_cell, limits=RUNS),
    "note": partial(text_cell, optional=True),
}
"""Readers of the cells of a row, in the order of its fields."""


@dataclass(frozen=True, slots=True)
class MeasuredCopies:
    """The copies of a calibrated machine.

    Attributes:
        table: the CSV file; its path is not part of the machine.
        sha256: of its bytes when the profile was read.
        curves: of pinned copies alone, for both directions.
    """

    table: Path = field(repr=False)
    sha256: str
    curves: Mapping[Direction, Curve]

    def scaled(self, factor: Callable[[Direction, int], float]) -> "MeasuredCopies":
        """Return curves whose times are multiplied by a factor of direction and size."""
        changed = {
            direction: tuple((nbytes, seconds * factor(direction, nbytes)) for nbytes, seconds in curve)
            for direction, curve in self.curves.items()
        }
        return replace(self, curves=changed)


def copy_table_text(rows: Iterable[CopyRow]) -> str:
    r"""Return copies as CSV text, \n at line ends; floats read back exactly."""
    return table_text(tuple(_COLUMNS), [_cells(row) for row in rows])


def read_copies(table: Path, data: bytes) -> MeasuredCopies:
    """Return the copies of a table of this content."""
    points: dict[Direction, list[tuple[int, float]]] = {direction: [] for direction in Direction}
    for row in parse_table(table, data, tuple(_COLUMNS), _rows):
        if row.host_memory is HostMemory.PINNED and not row.beside and not row.note:
            points[row.direction].append((row.nbytes, row.seconds))
    curves = {way: tuple(sorted(found)) if len(found) >= _FEWEST_POINTS else () for way, found in points.items()}
    return MeasuredCopies(table, hashlib.sha256(data).hexdigest(), curves)


def _cells(row: CopyRow) -> tuple[str, ...]:
    kind = (row.direction.value, row.host_memory.value, row.beside, str(row.nbytes))
    return (*kind, repr(row.seconds), repr(row.spread), str(row.count), row.note)


def _rows(lines: Lines) -> Iterator[CopyRow]:
    seen: dict[tuple[str, ...], int] = {}
    for line, cells in lines:
        row = CopyRow(*(read(column, cell) for (column, read), cell in zip(_COLUMNS.items(), cells, strict=True)))
        if (first := seen.setdefault(tuple(cells[:4]), line)) != line:
            raise WrongCellError(f"copied_bytes: {cells[3]} is given for this kind of copy in line {first} already")
        yield row
