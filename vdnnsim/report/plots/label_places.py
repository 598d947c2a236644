"""Where to write names beside crowded points so that no two of them overlap. All lengths are in one unit, as pixels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi, sin

_REACHES = (10, 20, 32, 46, 62, 80, 100, 125, 150, 180, 210, 250, 300, 360)
"""How far from its point a name may stand, the nearest place first."""

_DIRECTIONS = tuple(pi * step / 8 for step in (0, 1, -1, 2, -2, 4, -4, 3, -3, 8, 7, -7, 6, -6, 5, -5))
"""The right before above and below, the left last."""

_SAMPLES = 24
"""Points of a leader that are held against boxes."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its edges."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: "Box") -> bool:
        """Whether they share more than an edge."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies inside, and not on an edge."""
        return self.left < x < self.right and self.bottom < y < self.top

    def within(self, frame: "Box") -> bool:
        """Whether it lies in a frame as a whole."""
        return (
            frame.left <= self.left
            and frame.bottom <= self.bottom
            and self.right <= frame.right
            and self.top <= frame.top
        )

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Return its point that is closest to another."""
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)


def place_labels(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    marks: Sequence[Box],
    lines: Sequence[Box],
) -> tuple[Box | None, ...]:
    """Return the box of the name of each point, the first ones served first; None where there is no room.

    Args:
        points: what is named.
        sizes: width and height of each name.
        frame: what no name leaves.
        marks: what stands at points; no name covers it, and no leader crosses that of another point.
        lines: what no name covers, but leaders may cross.
    """
    placed: list[Box] = []
    leaders: list[tuple[float, float]] = []
    answers: list[Box | None] = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        others = [mark for mark in marks if not mark.holds(x, y)]
        for box in _candidates(x, y, width, height):
            leader = _leader(x, y, box)
            if (
                box.within(frame)
                and not any(box.overlaps(each) for each in (*marks, *lines, *placed))
                and not any(each.holds(*sample) for each in (*others, *placed) for sample in leader)
                and not any(box.holds(*sample) for sample in leaders)
            ):
                placed.append(box)
                leaders += leader
                answers.append(box)
                break
        else:
            answers.append(None)
    return tuple(answers)


def _candidates(x: float, y: float, width: float, height: float) -> Iterator[Box]:
    for reach in _REACHES:
        for angle in _DIRECTIONS:
            across, up = cos(angle), sin(angle)
            middle_x, middle_y = x + across * (reach + width / 2), y + up * (reach + height / 2)
            yield Box(middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2)


def _leader(x: float, y: float, box: Box) -> list[tuple[float, float]]:
    end_x, end_y = box.nearest(x, y)
    shares = [sample / _SAMPLES for sample in range(_SAMPLES)]
    return [(x + share * (end_x - x), y + share * (end_y - y)) for share in shares]
