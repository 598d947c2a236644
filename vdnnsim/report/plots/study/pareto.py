"""Pareto picture of a study: two results of each point against each other, and the front of those unbeaten."""

from collections.abc import Sequence
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.analysis.columns import Value
from vdnnsim.analysis.pareto import pareto_front
from vdnnsim.report.palette import ALARM, INK
from vdnnsim.report.plots.series import look, quantity_axis
from vdnnsim.report.plots.study.slide import study_slide
from vdnnsim.report.plots.style import ruled
from vdnnsim.report.study_picture import StudyCells, StudyPicture, best, cell, cell_text, known

_CAPACITY = "gpu.memory_bytes"
_USED = "max_memory_bytes"
_FRONT: Final[Any] = {"color": INK, "linewidth": 1.2, "linestyle": "--"}


def pareto_figure(rows: Sequence[StudyCells], picture: StudyPicture) -> Figure:
    """Draw a point for each row, hollow where it does not fit, and the front of those that fit.

    Where the horizontal axis is the memory in use, the boundary of what fits is drawn too.

    Raises:
        InputError: no row is left to draw.
    """
    slide = study_slide(rows, picture)
    places = [slide.place(row) for row in slide.rows]
    limited = False
    for axes, inside in slide.panels:
        points = [slide.place(row) for row in inside]
        quantity_axis(axes.xaxis, [x for x, _ in places], panels=len(slide.panels))
        quantity_axis(axes.yaxis, [y for _, y in places])
        fitting = [point for point, row in zip(points, inside, strict=True) if row["fits"]]
        unbeaten = front(fitting, picture.x, picture.y)
        axes.plot([x for x, _ in unbeaten], [y for _, y in unbeaten], zorder=3, **_FRONT)
        for (x, y), row in zip(points, inside, strict=True):
            color, marker = look(slide.names.index(cell_text(row[picture.by])) if picture.by else 0)
            fits = row["fits"]
            face = color if fits else "white"
            axes.plot(x, y, marker, color=color, markerfacecolor=face, markersize=11 if fits else 8, zorder=4)
        limit = _limit(inside, picture)
        if limit is not None:
            limited = True
            axes.axvline(slide.across.place(limit), color=ALARM, linewidth=3, zorder=2)
        slide.write_marks(axes)
        ruled(axes, "both")
    slide.panels[0][0].set_ylabel(slide.up.label)
    slide.write_legend(Line2D([], [], label="unbeaten", **_FRONT), bounded=limited, joined=False)
    return slide.figure


def _limit(rows: Sequence[StudyCells], picture: StudyPicture) -> Value | None:
    """Return the capacity of all rows if they state one; else the most memory of those that fit, if others do not."""
    if picture.x != _USED:
        return None
    capacities = {known(row, _CAPACITY) for row in rows if _CAPACITY in row}
    if capacities:
        return capacities.pop() if len(capacities) == 1 else None
    sizes = [(across, row["fits"]) for row in rows if isinstance(across := cell(row, picture.x), int | float)]
    fitting = [size for size, fits in sizes if fits]
    return max(fitting) if 0 < len(fitting) < len(sizes) else None


def front(points: Sequence[tuple[float, float]], x: str, y: str) -> list[tuple[float, float]]:
    """Return the points that no other beats in one column and equals in the other, from left to right."""
    signs = [-1 if best(column, (0.0, 1.0)) else 1 for column in (x, y)]
    costs = [(signs[0] * across, signs[1] * up) for across, up in points]
    return sorted({point for point, kept in zip(points, pareto_front(costs), strict=True) if kept})
