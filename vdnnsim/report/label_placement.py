"""Where to write names beside crowded points so that no two of them overlap.

All lengths are in one unit, as pixels. A box is its left, bottom, right and top edge.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from math import ceil, pi

import numpy as np
from numpy.typing import NDArray

Place = tuple[float, float]
Box = tuple[float, float, float, float]
_Numbers = NDArray[np.float64]
_Answers = NDArray[np.bool_]

_REACHES = (10, 20, 32, 46, 62, 80, 100, 125, 150, 180, 210, 250, 300, 360)
"""How far from its point a name may stand, the nearest place first."""

_DIRECTIONS = tuple(pi * step / 8 for step in (0, 1, -1, 2, -2, 4, -4, 3, -3, 8, 7, -7, 6, -6, 5, -5))
"""The right before above and below, the left last; those between them where they have no room."""
_BETWEEN = tuple(each + pi / 16 for each in _DIRECTIONS)

_SAMPLES = 24
"""Points of a leader that are held against boxes."""
_PIECE = 16.0
"""Of a slanting line, what is kept clear at once."""


def place_labels(
    points: Sequence[Place],
    sizes: Sequence[Place],
    frame: Box,
    marks: Sequence[Box],
    lines: Sequence[Box],
    insisted: Collection[int] = (),
) -> tuple[Box | None, ...]:
    """Return the box of the name of each point, the first ones served first; None where there is no room.

    Args:
        points: what is named.
        sizes: width and height of each name.
        frame: what no name leaves.
        marks: what stands at points; no name covers it, and no leader crosses that of another point.
        lines: what no name covers, but leaders may cross.
        insisted: which names may have a leader over marks and other names, rather than not be written.
    """
    every, ruled = _boxes(marks), _boxes(lines)
    placed, leaders = _boxes(()), np.empty((0, 2))
    answers: list[Box | None] = []
    pairs = zip(np.asarray(points, dtype=float), np.asarray(sizes, dtype=float), strict=True)
    for number, (point, size) in enumerate(pairs):
        boxes = _candidates(point, size)
        leader = _leaders(point, boxes)
        others = every[~_holds(every, point[None])[:, 0]]
        crossed = np.concatenate((others, placed))
        free = (
            (boxes[:, :2] >= frame[:2]).all(axis=1)
            & (boxes[:, 2:] <= frame[2:]).all(axis=1)
            & ~_overlap(boxes, np.concatenate((every, ruled, placed))).any(axis=1)
            & ~_holds(boxes, leaders).any(axis=1)
        )
        led = free & ~_holds(crossed, leader.reshape(-1, 2)).any(axis=0).reshape(-1, _SAMPLES).any(axis=1)
        if led.any() or number not in insisted:
            free = led
        if not free.any():
            answers.append(None)
            continue
        best = int(free.argmax())
        placed, leaders = np.concatenate((placed, boxes[best : best + 1])), np.concatenate((leaders, leader[best]))
        left, bottom, right, top = map(float, boxes[best])
        answers.append((left, bottom, right, top))
    return tuple(answers)


def along(line: Sequence[Place], margin: float) -> Iterable[Box]:
    """Yield boxes that cover a line through points, or one point, however it slants, with a margin."""
    for (x, y), (next_x, next_y) in pairwise(line if len(line) > 1 else (*line, *line)):
        pieces = max(1, ceil(max(abs(next_x - x), abs(next_y - y)) / _PIECE))
        shares = np.linspace(0, 1, pieces + 1)
        across, up = (x + shares * (next_x - x)).tolist(), (y + shares * (next_y - y)).tolist()
        for (x0, x1), (y0, y1) in zip(pairwise(across), pairwise(up), strict=True):
            yield min(x0, x1) - margin, min(y0, y1) - margin, max(x0, x1) + margin, max(y0, y1) + margin


def nearest(box: Box, point: Place) -> Place:
    """Return the point of a box that is closest to another."""
    left, bottom, right, top = box
    return min(max(point[0], left), right), min(max(point[1], bottom), top)


def _boxes(boxes: Sequence[Box]) -> _Numbers:
    return np.asarray(boxes, dtype=float).reshape(-1, 4)


def _candidates(point: _Numbers, size: _Numbers) -> _Numbers:
    angles = np.concatenate([np.tile(each, len(_REACHES)) for each in (_DIRECTIONS, _BETWEEN)])
    away = np.tile(np.repeat(_REACHES, len(_DIRECTIONS)), 2)[:, None] + size / 2
    middles = point + np.stack((np.cos(angles), np.sin(angles)), axis=1) * away
    return np.concatenate((middles - size / 2, middles + size / 2), axis=1)


def _leaders(point: _Numbers, boxes: _Numbers) -> _Numbers:
    """Return for each box the points of the line to it."""
    ends = np.clip(point, boxes[:, :2], boxes[:, 2:])
    shares = np.arange(_SAMPLES)[:, None] / _SAMPLES
    return point + shares * (ends - point)[:, None]


def _overlap(boxes: _Numbers, others: _Numbers) -> _Answers:
    """Return for each box and each other whether they share more than an edge."""
    low, high = boxes[:, None, :2], boxes[:, None, 2:]
    shared: _Answers = np.all((low < others[:, 2:]) & (others[:, :2] < high), axis=2)
    return shared


def _holds(boxes: _Numbers, points: _Numbers) -> _Answers:
    """Return for each box and each point whether it lies inside, and not on an edge."""
    inside: _Answers = np.all((boxes[:, None, :2] < points) & (points < boxes[:, None, 2:]), axis=2)
    return inside
