"""Names beside the points of a picture, written where there is room for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D

from vdnnsim.report.label_placement import Place, along, nearest, place_labels
from vdnnsim.report.labels import fold_label, joined_labels
from vdnnsim.report.palette import MUTED

_MARKER: Final = 9.0
_LINE: Final = 3.0
"""Pixels around points and lines that no name covers."""
_NEAR: Final = 3.0
"""Points no further apart share a name."""
_FAR: Final = 14.0
"""Names further away have a line to their point."""
_CHARACTERS: Final = 26
"""Of a line of a name."""


@dataclass(frozen=True, slots=True)
class Named:
    """A point, in the units of the axes, the policies that it stands for, and how their names look.

    Points of one kind that lie together share a name. One that is insisted upon is written though its leader crosses
    other points.
    """

    place: Place
    policies: tuple[str, ...]
    kind: tuple[bool, ...]
    look: dict[str, Any]
    is_insisted: bool = False


def write_names(axes: Axes, named: Sequence[Named], points: Sequence[Place], lines: Sequence[Sequence[Place]]) -> int:
    """Write names beside their points where there is room, the first ones served first.

    Args:
        axes: what no name leaves, with what is written on it already.
        named: what is named.
        points: what no name covers, and no leader of another point crosses.
        lines: what no name covers, but leaders may cross.

    Returns:
        For how many points there is no room.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]

    def pixels(place: Place) -> Place:
        x, y = axes.transData.transform(place)
        return float(x), float(y)

    kept_clear = [box for line in lines for box in along([pixels(place) for place in line], _LINE)]
    written = (text.get_window_extent(renderer) for text in axes.texts)
    kept_clear += [(extent.x0, extent.y0, extent.x1, extent.y1) for extent in written]
    marks = [box for place in points for box in along([pixels(place)], _MARKER)]
    groups = _near_groups(named, [pixels(each.place) for each in named])
    look: dict[str, Any] = {"ha": "center", "va": "center", "linespacing": 1.1}
    texts = [
        figure.text(0.5, 0.5, fold_label(joined_labels(_policies(group)), _CHARACTERS), **look | group[0].look)
        for group in groups
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


def _policies(group: Sequence[Named]) -> list[str]:
    return [policy for each in group for policy in each.policies]
