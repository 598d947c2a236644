"""Names beside the points of a picture, written where there is room for them."""

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from math import ceil
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from vdnnsim.report.plots.label_places import Box, place_labels
from vdnnsim.report.plots.style import MUTED

MARKER_PIXELS: Final = 9.0
LINE_PIXELS: Final = 3.0
_NEAR_PIXELS: Final = 3.0
"""Points no further apart share a name."""
_FAR_PIXELS: Final = 14.0
"""Names further away have a line to their point."""
_PIECE_PIXELS: Final = 16.0
"""Of a slanting line, what is kept clear at once."""


def near_groups(places: Sequence[tuple[float, float]], kinds: Sequence[Hashable]) -> list[list[int]]:
    """Return the numbers of places in pixels that share a name, for they lie together and are of one kind."""
    groups: list[list[int]] = []
    for number, (x, y) in enumerate(places):
        for group in groups:
            other_x, other_y = places[group[0]]
            near = max(abs(x - other_x), abs(y - other_y)) <= _NEAR_PIXELS
            if near and kinds[group[0]] == kinds[number]:
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def write_names(
    figure: Figure,
    axes: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[Text],
    dots: Sequence[Box],
    lines: Sequence[Box],
) -> tuple[bool, ...]:
    """Put texts of the figure beside their points, and remove those for which there is no room.

    Args:
        figure: the slide.
        axes: what no name leaves.
        points: in pixels, the most important first.
        texts: their names.
        dots: what stands at points; no name covers it, and no leader crosses that of another point.
        lines: what no name covers, but leaders may cross.

    Returns:
        Whether each is written.
    """
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    extents = [text.get_window_extent(renderer) for text in texts]
    sizes = [(extent.width + 4, extent.height + 2) for extent in extents]
    window = axes.get_window_extent(renderer)
    frame = Box(window.x0 + 4, window.y0 + 4, window.x1, window.y1)
    boxes = place_labels(points, sizes, frame, dots, lines)
    to_figure = figure.transFigure.inverted().transform
    for text, box, (x, y) in zip(texts, boxes, points, strict=True):
        if box is None:
            text.remove()
            continue
        middle_x, middle_y = to_figure(((box.left + box.right) / 2, (box.bottom + box.top) / 2))
        text.set_position((middle_x, middle_y))
        end = box.nearest(x, y)
        if max(abs(end[0] - x), abs(end[1] - y)) > _FAR_PIXELS:
            (from_x, from_y), (to_x, to_y) = to_figure((x, y)), to_figure(end)
            figure.add_artist(Line2D([from_x, to_x], [from_y, to_y], color=MUTED, linewidth=0.8, zorder=3))
    return tuple(box is not None for box in boxes)


def around(low: tuple[float, float], high: tuple[float, float], margin: float) -> Box:
    """Return the box between two corners with a margin."""
    return Box(low[0] - margin, low[1] - margin, high[0] + margin, high[1] + margin)


def along(line: Sequence[tuple[float, float]], margin: float) -> Iterator[Box]:
    """Yield boxes that cover a line through points, however it slants."""
    for (x, y), (next_x, next_y) in pairwise(line):
        pieces = max(1, ceil(max(abs(next_x - x), abs(next_y - y)) / _PIECE_PIXELS))
        for piece in range(pieces):
            start, end = piece / pieces, (piece + 1) / pieces
            ends = sorted((y + start * (next_y - y), y + end * (next_y - y)))
            low, high = (x + start * (next_x - x), ends[0]), (x + end * (next_x - x), ends[1])
            yield around(low, high, margin)
