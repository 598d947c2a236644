"""Pictures of several series: colours, markers, panels, axes and marks."""

from itertools import pairwise
from math import log
from typing import Final

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from vdnnsim.report.palette import INK, MUTED, SERIES_COLORS
from vdnnsim.report.plots.style import ABOVE, plain_ticks, spread, write

MARKERS: Final = "osD^vPX*"
DASHES: Final = (0, (4, 3))
_RIGHT, _TOP, _BOTTOM, _BETWEEN, _ABOVE = 0.975, 0.83, 0.2, 0.03, 0.14
_ROOM = 0.05
"""Margin at both ends of an axis, as a share of it."""
_TOP_WITHOUT_NAMES, _MARKED = 0.855, 0.11
_MOST_TICKS = 12
_TICK_GAP = 0.04
"""Share of the width that a tick needs."""
_MANY_PANELS = 4
_MOST_COLUMNS = 4


def look(number: int) -> tuple[str, str]:
    return SERIES_COLORS[number % len(SERIES_COLORS)], MARKERS[number % len(MARKERS)]


def panel_axes(figure: Figure, names: tuple[str, ...], *, marked: bool, left: float) -> list[Axes]:
    """Return titled axes for each panel, up to four in a row; `marked` ones have room for names of marks above."""
    rows = -(-len(names) // _MOST_COLUMNS)
    columns = -(-len(names) // rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    top = (_TOP if any(names) else _TOP_WITHOUT_NAMES) - (_MARKED if marked else 0)
    between = _ABOVE + (_MARKED if marked else 0)
    width, height = (_RIGHT - left) / columns, (top - _BOTTOM) / rows
    figure.subplots_adjust(
        left=left, right=_RIGHT, top=top, bottom=_BOTTOM, wspace=_BETWEEN / width, hspace=between / height
    )
    every = [axes for row in grid for axes in row]
    for axes in every[len(names) :]:
        axes.remove()
    for axes, name in zip(every, names, strict=False):
        axes.set_title(name, fontsize=15, fontweight="bold", color=INK, pad=84 if marked else 8)
    return every[: len(names)]


def quantity_axis(axis: Axis, values: list[float], *, from_zero: bool = False, panels: int = 1) -> None:
    """Scale an axis: logarithmic for a wide range that is not evenly spaced; few values become its ticks."""
    low, high, found = min(values), max(values), sorted(set(values))
    steps = [after - before for before, after in pairwise(found)]
    even = 1 < len(steps) < _MOST_TICKS and max(steps) < 1.01 * min(steps)
    if from_zero:
        axis.axes.set_ylim(0, 1.08 * high)
    elif not spread(axis, values, _ROOM, linear=even):
        if even:
            axis.set_major_locator(FixedLocator(found))
    else:
        gaps = [log(after / before) / log(high / low) for before, after in pairwise(found)]
        few = len(found) <= _MOST_TICKS and min(gaps) > _TICK_GAP * panels
        axis.set_minor_locator(NullLocator())
        plain_ticks(axis, found if few else (), (1, 2, 5) if panels < _MANY_PANELS else (1,))


def write_marks(axes: Axes, marks: list[tuple[str, float]]) -> None:
    low, high = axes.get_xlim()
    for name, place in marks:
        if low <= place <= high:
            axes.axvline(place, color=MUTED, linestyle=(0, (1, 2)), linewidth=1.5, zorder=1)
            look = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 11.5, "color": MUTED}
            write(axes, name, (place, 1.0), (0, 4), ABOVE, **look)


def series_handle(number: int, name: str, size: float = 9) -> Line2D:
    color, marker = look(number)
    return Line2D([], [], color=color, marker=marker, linewidth=2.5, markersize=size, label=name)
