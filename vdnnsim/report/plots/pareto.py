"""Pareto picture of a study: two results of each point against each other, and the front of those unbeaten."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vdnnsim.report.plots.lines import distinct, subtitle
from vdnnsim.report.plots.series import (
    boundary_handle,
    look,
    panel_axes,
    quantity_axis,
    ruled,
    series_handle,
    unfit_handle,
    write_legend,
    write_marks,
)
from vdnnsim.report.plots.style import ALARM, new_figure
from vdnnsim.report.study_axis import StudyRow, best, cell, known, shown_rows, study_axis
from vdnnsim.report.study_picture import StudyPicture, cell_text

_CAPACITY = "gpu.memory_bytes"
_USED = "max_memory_bytes"


def pareto_figure(rows: Sequence[StudyRow], picture: StudyPicture) -> Figure:
    """Draw a point for each row, hollow where it does not fit, and the front of those that fit.

    Where the horizontal axis is the memory in use and all rows of a panel have one capacity, that is drawn too.

    Raises:
        InputError: no row is left to draw.
    """
    shown = shown_rows(rows, picture)
    figure = new_figure(picture.title, subtitle(shown, picture))
    across = study_axis(picture.x, (cell(row, picture.x) for row in shown), picture.x_label)
    up = study_axis(picture.y, (known(row, picture.y) for row in shown))
    panels, names = distinct(shown, picture.panels), distinct(shown, picture.by)
    every = panel_axes(figure, panels, marked=bool(picture.marks))
    limited = False
    for axes, panel in zip(every, panels, strict=True):
        inside = [row for row in shown if not picture.panels or cell_text(row[picture.panels]) == panel]
        points = [(across.place(cell(row, picture.x)), up.place(known(row, picture.y))) for row in inside]
        quantity_axis(axes.xaxis, [across.place(cell(row, picture.x)) for row in shown], from_zero=False)
        quantity_axis(axes.yaxis, [up.place(known(row, picture.y)) for row in shown], from_zero=False)
        fitting = [point for point, row in zip(points, inside, strict=True) if row["fits"]]
        _draw_front(axes, front(fitting, picture.x, picture.y))
        for (x, y), row in zip(points, inside, strict=True):
            color, marker = look(names.index(cell_text(row[picture.by])) if picture.by else 0)
            fits = row["fits"]
            face = color if fits else "white"
            axes.plot(x, y, marker, color=color, markerfacecolor=face, markersize=11 if fits else 8, zorder=4)
        capacities = {known(row, _CAPACITY) for row in inside if picture.x == _USED and _CAPACITY in row}
        if len(capacities) == 1:
            limited = True
            axes.axvline(across.place(capacities.pop()), color=ALARM, linewidth=3, zorder=2)
        write_marks(axes, [(mark.name, mark.value / across.scale.factor) for mark in picture.marks])
        ruled(axes, "both")
    every[0].set_ylabel(up.label)
    figure.supxlabel(across.label, y=0.105, fontsize=16)
    handles = [series_handle(number, name) for number, name in enumerate(names) if name]
    if any(not row["fits"] for row in shown):
        handles.append(unfit_handle())
    if limited:
        handles.append(boundary_handle("capacity"))
    write_legend(figure, handles)
    return figure


def front(points: Sequence[tuple[float, float]], x: str, y: str) -> list[tuple[float, float]]:
    """Return the points that no other beats in one column and equals in the other, from left to right."""

    def as_good(column: str, one: float, other: float) -> bool:
        return best(column, (one, other)) == one

    kept = [
        point
        for point in points
        if not any(
            other != point and as_good(x, other[0], point[0]) and as_good(y, other[1], point[1]) for other in points
        )
    ]
    return sorted(set(kept))


def _draw_front(axes: Axes, places: list[tuple[float, float]]) -> None:
    axes.plot([x for x, _ in places], [y for _, y in places], color="#1a1a1a", linewidth=1.2, linestyle="--", zorder=3)
