"""Lines of a study: how a result follows one of the axes, and where each line leaves what fits."""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vdnnsim.errors import InputError
from vdnnsim.report.plots.series import (
    DASHES,
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
from vdnnsim.report.plots.style import ALARM, MUTED, new_figure
from vdnnsim.report.study_axis import StudyAxis, StudyRow, cell, shown_rows, study_axis
from vdnnsim.report.study_picture import StudyPicture, cell_text

_WHOLE = 1.0
"""Speed of the oracular baseline, the line to reach."""


def lines_figure(rows: Sequence[StudyRow], picture: StudyPicture) -> Figure:
    """Draw a line for each value of `by`: solid through what fits, pale and hollow through what does not.

    Raises:
        InputError: no row is left to draw, or two share one place.
    """
    shown = shown_rows(rows, picture)
    figure = new_figure(picture.title, subtitle(shown, picture))
    across = study_axis(picture.x, (cell(row, picture.x) for row in shown), picture.x_label)
    up = study_axis(picture.y, (cell(row, picture.y) for row in shown), picture.y_label)
    panels, names = distinct(shown, picture.panels), distinct(shown, picture.by)
    every = panel_axes(figure, panel_names(picture.panels, panels), marked=bool(picture.marks))
    left = False
    for axes, panel in zip(every, panels, strict=True):
        _scale_axes(axes, shown, picture, across, up, len(panels))
        for number, name in enumerate(names):
            line = [row for row in shown if _is(row, picture.panels, panel) and _is(row, picture.by, name)]
            left |= _draw(axes, line, picture, across, up, number)
        if picture.y.endswith("performance_ratio"):
            axes.axhline(_WHOLE / up.scale.factor, color=MUTED, linestyle=DASHES, linewidth=2, zorder=1)
        write_marks(axes, [(mark.name, mark.value / across.scale.factor) for mark in picture.marks])
        ruled(axes, "y")
        spec = axes.get_subplotspec()
        assert spec is not None
        if spec.is_first_col():
            axes.set_ylabel(up.label)
    figure.supxlabel(across.label, y=0.105, fontsize=16)
    handles = [series_handle(number, name) for number, name in enumerate(names) if name]
    if any(not row["fits"] for row in shown):
        handles.append(unfit_handle())
    if left:
        handles.append(boundary_handle("boundary of what fits"))
    write_legend(figure, handles)
    return figure


def distinct(rows: Sequence[StudyRow], column: str) -> tuple[str, ...]:
    """Return the values of a column in the order of the rows; one empty one where there is no column."""
    return tuple(dict.fromkeys(cell_text(row[column]) for row in rows)) if column else ("",)


def panel_names(column: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return what stands above the panels: names as they are, numbers with what they count."""
    words = study_axis(column, [0]).label if column else ""
    return tuple(f"{words} {value}" if value.isdigit() else value for value in values)


def subtitle(rows: Sequence[StudyRow], picture: StudyPicture) -> str:
    """Return what is the same for all rows of a picture, and what hollow points are."""
    fit = "; hollow where it does not fit, replayed without a capacity" if any(not row["fits"] for row in rows) else ""
    return common(rows, picture) + fit


def common(rows: Sequence[StudyRow], picture: StudyPicture) -> str:
    """Return what is the same for all rows of a picture, as its study says or their columns."""
    if picture.subtitle:
        return picture.subtitle
    varied = {picture.x, picture.y, picture.value, picture.by, picture.panels}
    said = []
    for column, what in (("network", ""), ("batch_size", "batch size "), ("hardware", "on "), ("policy", "")):
        values = distinct(rows, column) if column not in varied and column in rows[0] else ()
        if len(values) == 1:
            said.append(f"{what}{values[0]}")
    return ", ".join(said) or f"{len(rows)} points"


def _is(row: StudyRow, column: str, value: str) -> bool:
    return not column or cell_text(row[column]) == value


def _scale_axes(
    axes: Axes, rows: list[StudyRow], picture: StudyPicture, across: StudyAxis, up: StudyAxis, panels: int
) -> None:
    xs = [across.place(cell(row, picture.x)) for row in rows]
    if across.names:
        axes.set_xticks(range(len(across.names)), across.names)
        axes.set_xlim(-0.4, len(across.names) - 0.6)
    else:
        quantity_axis(axes.xaxis, xs, panels=panels)
    ys = [up.place(cell(row, picture.y)) for row in rows]
    steep = min(ys) > 0 and max(ys) > 30 * min(ys) and not picture.y.endswith("_ratio")
    quantity_axis(axes.yaxis, ys, from_zero=not steep)


def _draw(
    axes: Axes, rows: list[StudyRow], picture: StudyPicture, across: StudyAxis, up: StudyAxis, number: int
) -> bool:
    """Draw one line; return whether it leaves what fits, which a bar across it marks."""
    color, marker = look(number)
    points = sorted(
        (across.place(cell(row, picture.x)), up.place(cell(row, picture.y)), bool(row["fits"])) for row in rows
    )
    for (x, _, _), (following, _, _) in pairwise(points):
        if x == following:
            raise InputError(
                f"picture {picture.name!r}: found two points of one line at {picture.x} {x:g}, expected one; "
                "choose among them with where, by or panels"
            )
    left = False
    for (x, y, fits), (next_x, next_y, next_fits) in pairwise(points):
        whole = fits and next_fits
        look_of = {"linewidth": 2.8} if whole else {"linewidth": 1.6, "linestyle": ":", "alpha": 0.6}
        axes.plot((x, next_x), (y, next_y), color=color, zorder=3 if whole else 2, **look_of)
        if fits != next_fits:
            edge = (x, y) if fits else (next_x, next_y)
            axes.plot(*edge, "|", color=ALARM, markersize=26, markeredgewidth=4, zorder=4)
            left = True
    for x, y, fits in points:
        face = color if fits else "white"
        size = 8 if fits else 6
        axes.plot(x, y, marker, color=color, markersize=size, markerfacecolor=face, markeredgewidth=1.5, zorder=5)
    return left
