"""A study: a scenario, axes over its values and those of its machine, and conditions that leave out combinations."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from vdnnsim.report.study_picture import StudyPicture
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.points.resolve import POLICY, Point, Value, shown
from vdnnsim.units import Dimension, quantity_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_POINTS: Final = 1_000_000
"""Of a grid that is computed without `--yes`."""
_COPIES: Final = ("link.", "host.", "pinned_memory")
_MEMORY: Final = ("gpu.memory", "host.memory", "memory_model")
_AT_ONCE: Final = 16_384

Condition: TypeAlias = "Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]"
"""Returns which points stay, from a column of shown values for each axis."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: key path, name in tables, and distinct values."""

    key: str
    column: str
    values: tuple[Value, ...]

    def text(self, value: Value) -> str:
        """Return a value of the axis, a quantity with its unit."""
        unit = self.column.removeprefix(f"{self.key}_")
        dimension = next((each for each in Dimension if each.suffix == unit), None)
        if dimension is None or not isinstance(value, int | float):
            return str(shown(value))
        return quantity_text(value, dimension)


@dataclass(frozen=True, slots=True)
class Study:
    """A grid of points.

    Attributes:
        base: the scenario whose values the axes vary.
        axes: in the order of the file; the policies of the base are the last one where no axis varies them.
        where: conditions, all of which hold for each point.
        sources: (name, SHA-256) of the files that were read.
        folder: of the study's file, from which profiles are looked up.
    """

    name: str
    base: Scenario
    axes: tuple[Axis, ...]
    where: tuple[Condition, ...]
    sources: tuple[tuple[str, str], ...]
    folder: str
    pictures: tuple[StudyPicture, ...] = ()

    @property
    def grid_size(self) -> int:
        """Combinations before conditions."""
        return math.prod(len(axis.values) for axis in self.axes)

    def points(self) -> Iterator[Point]:
        """Yield the points in the order of the file: the last axis varies fastest."""
        return self._points(self.axes)

    def points_by_plan(self) -> Iterator[Point]:
        """Yield the points so that consecutive ones share cost tables, plans and replays."""
        return self._points(sorted(self.axes, key=_how_late))

    def _points(self, axes: Sequence[Axis]) -> Iterator[Point]:
        keys = [axis.key for axis in axes]
        grid = itertools.product(*(axis.values for axis in axes))
        for values in itertools.compress(grid, self._stay(axes)) if self.where else grid:
            yield dict(zip(keys, values, strict=True))

    def _stay(self, axes: Sequence[Axis]) -> Iterator[bool]:
        """Yield whether all conditions hold for each combination."""
        import numpy as np

        # Objects, for Python compares integers and floats without rounding.
        columns = [np.array([shown(value) for value in axis.values], dtype=object) for axis in axes]
        for first in range(0, self.grid_size, _AT_ONCE):
            these = np.arange(first, min(first + _AT_ONCE, self.grid_size))
            places = np.unravel_index(these, [len(column) for column in columns])
            points = {axis.key: column[place] for axis, column, place in zip(axes, columns, places, strict=True)}
            yield from np.logical_and.reduce([holds(points) for holds in self.where]).tolist()


def _how_late(axis: Axis) -> int:
    """Return 0 for keys that change cost tables, 1 for policies, 2 for keys that change copies, 3 for memory."""
    if axis.key in _MEMORY:
        return 3
    if axis.key.startswith(_COPIES):
        return 2
    return 1 if axis.key == POLICY else 0
