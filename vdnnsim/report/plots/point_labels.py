"""Placement of labels beside points without overlaps."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, pi
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from vdnnsim.report.labels import fold_label, joined_labels
from vdnnsim.report.palette import MUTED

Place = tuple[float, float]
Box = tuple[float, float, float, float]
_Numbers = NDArray[np.float64]
_Answers = NDArray[np.bool_]

_REACHES = (10, 20, 32, 46, 62, 80, 100, 125, 150, 180, 210, 250, 300, 360)
"""Distances between point and label, tried in this order."""

_DIRECTIONS = tuple(pi * step / 8 for step in (0, 1, -1, 2, -2, 4, -4, 3, -3, 8, 7, -7, 6, -6, 5, -5))
"""Tried in this order: right, above and below, left; then those between them."""
_BETWEEN = tuple(each + pi / 16 for each in _DIRECTIONS)

_SAMPLES = 24
"""Points of a leader that are tested against boxes."""
_PIECE = 16.0
"""Length of the pieces in which a slanting line is covered."""


def place_labels(
    points: Sequence[Place],
    sizes: Sequence[Place],
    frame: Box,
    marks: Sequence[Box],
    lines: Sequence[Box],
    insisted: Collection[int] = (),
) -> tuple[Box | None, ...]:
    """Return the box (left, bottom, right, top) of each label, placed in order; None where there is no room.

    Args:
        points: to label.
        sizes: width and height of each label.
        frame: contains all labels.
        marks: not covered by labels, nor crossed by leaders of other points.
        lines: not covered by labels, but leaders may cross them.
        insisted: labels whose leaders may cross marks and labels, rather than be left out.
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
    """Yield boxes that cover a line through points, or one point, with a margin."""
    for (x, y), (next_x, next_y) in pairwise(line if len(line) > 1 else (*line, *line)):
        pieces = max(1, ceil(max(abs(next_x - x), abs(next_y - y)) / _PIECE))
        shares = np.linspace(0, 1, pieces + 1)
        across, up = (x + shares * (next_x - x)).tolist(), (y + shares * (next_y - y)).tolist()
        for (x0, x1), (y0, y1) in zip(pairwise(across), pairwise(up), strict=True):
            yield min(x0, x1) - margin, min(y0, y1) - margin, max(x0, x1) + margin, max(y0, y1) + margin


def nearest(box: Box, point: Place) -> Place:
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
    ends = np.clip(point, boxes[:, :2], boxes[:, 2:])
    shares = np.arange(_SAMPLES)[:, None] / _SAMPLES
    return point + shares * (ends - point)[:, None]


def _overlap(boxes: _Numbers, others: _Numbers) -> _Answers:
    low, high = boxes[:, None, :2], boxes[:, None, 2:]
    shared: _Answers = np.all((low < others[:, 2:]) & (others[:, :2] < high), axis=2)
    return shared


def _holds(boxes: _Numbers, points: _Numbers) -> _Answers:
    inside: _Answers = np.all((boxes[:, None, :2] < points) & (points < boxes[:, None, 2:]), axis=2)
    return inside


_MARKER: Final = 9.0
_LINE: Final = 3.0
"""Pixels kept clear around points and lines."""
_NEAR: Final = 3.0
"""Points within so many pixels share a label."""
_FAR: Final = 14.0
"""Labels further away have a leader."""
_CHARACTERS: Final = 26
"""Per line of a label."""


@dataclass(frozen=True, slots=True)
class Named:
    """A labelled point in units of the axes; near points of one kind share a label."""

    place: Place
    policies: tuple[str, ...]
    kind: tuple[bool, ...]
    look: dict[str, Any]
    is_insisted: bool = False


def write_names(axes: Axes, named: Sequence[Named], points: Sequence[Place], lines: Sequence[Sequence[Place]]) -> int:
    """Write names beside their points, clear of points, lines and texts; return how many had no room."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]

    def pixels(place: Place) -> Place:
        x, y = map(float, axes.transData.transform(place))
        return x, y

    kept_clear = [box for line in lines for box in along([pixels(place) for place in line], _LINE)]
    written = (text.get_window_extent(renderer) for text in axes.texts)
    kept_clear += [(extent.x0, extent.y0, extent.x1, extent.y1) for extent in written]
    marks = [box for place in points for box in along([pixels(place)], _MARKER)]
    groups = _near_groups(named, [pixels(each.place) for each in named])
    look: dict[str, Any] = {"ha": "center", "va": "center", "linespacing": 1.1}
    texts = [
        figure.text(0.5, 0.5, fold_label(joined_labels(policies), _CHARACTERS), **look | group[0].look)
        for group in groups
        for policies in [[policy for each in group for policy in each.policies]]
    ]
    extents = [text.get_window_extent(renderer) for text in texts]
    window = axes.get_window_extent(renderer)
    places = [pixels(group[0].place) for group in groups]
    sizes = [(extent.width + 4, extent.height + 2) for extent in extents]
    insisted = [number for number, group in enumerate(groups) if group[0].is_insisted]
    frame = window.x0 + 4, window.y0 + 4, window.x1, window.y1
    boxes = place_labels(places, sizes, frame, marks, kept_clear, insisted)
    to_figure = figure.transFigure.inverted().transform
    for text, box, place in zip(texts, boxes, places, strict=True):
        if box is None:
            text.remove()
            continue
        x, y = to_figure(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2))
        text.set_position((float(x), float(y)))
        end = nearest(box, place)
        if max(abs(end[0] - place[0]), abs(end[1] - place[1])) > _FAR:
            leader = to_figure((place, end))
            figure.add_artist(Line2D(leader[:, 0], leader[:, 1], color=MUTED, linewidth=0.8, zorder=3))
    return sum(len(group) for group, box in zip(groups, boxes, strict=True) if box is None)


def _near_groups(named: Sequence[Named], places: Sequence[Place]) -> list[list[Named]]:
    groups: list[tuple[Place, list[Named]]] = []
    for each, (x, y) in zip(named, places, strict=True):
        for (other_x, other_y), group in groups:
            if max(abs(x - other_x), abs(y - other_y)) <= _NEAR and group[0].kind == each.kind:
                group.append(each)
                break
        else:
            groups.append(((x, y), [each]))
    return [group for _, group in groups]
