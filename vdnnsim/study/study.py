"""A study: a scenario, axes over its values and those of its machine, and conditions that leave out combinations."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from vdnnsim.report.study.picture import StudyPicture
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.points.resolve import POLICY, Point, Value

MOST_POINTS: Final = 1_000_000
"""Of a grid that is computed without being asked for twice."""

_COPIES: Final = ("link.", "host.", "pinned_memory")
_MEMORY: Final = ("gpu.memory", "host.memory", "memory_model")


Condition: TypeAlias = Callable[[Point], bool]
"""Says of a point whether it stays."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: the key path of what is varied, its name in tables, and its values, each once."""

    key: str
    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Study:
    """One grid of questions.

    Attributes:
        name: stem of its file.
        base: the scenario whose values the axes vary.
        axes: in the order of the file; the policies of the base come last where no axis varies them.
        where: all of them hold for each point.
        sources: (name, SHA-256) of the files that were read.
        folder: of the study's file, beside which profiles are looked up.
        pictures: what is drawn of the results.
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
        """Combinations before conditions leave some out."""
        return math.prod(len(axis.values) for axis in self.axes)

    def points(self) -> Iterator[Point]:
        """Yield the points in the order of the file: the last axis varies fastest."""
        return self._points(self.axes)

    def points_by_plan(self) -> Iterator[Point]:
        """Yield the points so that those follow each other which can share what was computed."""
        return self._points(sorted(self.axes, key=_how_late))

    def _points(self, axes: "tuple[Axis, ...] | list[Axis]") -> Iterator[Point]:
        keys = [axis.key for axis in axes]
        for values in itertools.product(*(axis.values for axis in axes)):
            point = dict(zip(keys, values, strict=True))
            for holds in self.where:
                if not holds(point):
                    break
            else:
                yield point


def _how_late(axis: Axis) -> int:
    """Return 0 for what a cost table depends on, 1 for policies, 2 for what copies depend on, 3 for memory."""
    if axis.key in _MEMORY:
        return 3
    if axis.key.startswith(_COPIES):
        return 2
    return 1 if axis.key == POLICY else 0
