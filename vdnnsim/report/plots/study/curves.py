"""Lines and Pareto fronts of a study: one result over an axis, or over another result."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.analysis.comparison import pareto_front
from vdnnsim.errors import InputError
from vdnnsim.report.palette import ALARM, INK, MUTED
from vdnnsim.report.plots.series import DASHES, look, panel_axes, quantity_axis, series_handle, write_marks
from vdnnsim.report.plots.style import new_figure, point_handle, ruled, write_legend
from vdnnsim.report.study_picture import (
    KERNEL_TIMES,
    StudyAxis,
    StudyCells,
    StudyPicture,
    best,
    cell,
    cell_text,
    shown_rows,
    study_axis,
)

if TYPE_CHECKING:
    from pandas import DataFrame

_IN_A_ROW = 5
"""Legend entries."""
_WHOLE = 1.0
"""Speed of the oracular baseline."""
_CAPACITY, _USED = "gpu.memory_bytes", "allocated_bytes"
_FRONT: Final[Any] = {"color": INK, "linewidth": 1.2, "linestyle": "--"}


@dataclass(frozen=True, slots=True)
class StudySlide:
    """An empty figure with the data to draw.

    Attributes:
        across, up: horizontal and vertical axis of all panels.
        points: for each row its place `x`, `y` in units of the axes, `fits`, `series` and `panel` as text (empty where
            the picture has none), the number `value` of a heat map, and the `capacity` of its GPU.
        panels: the axes of each, and its points.
    """

    picture: StudyPicture
    figure: Figure
    across: StudyAxis
    up: StudyAxis
    points: "DataFrame"
    panels: list[tuple[Axes, "DataFrame"]]

    @property
    def names(self) -> list[str]:
        """The series, in the order of the rows."""
        return list(self.points.series.unique())

    def write_marks(self, axes: Axes) -> None:
        """Draw the marks of the picture into a scaled panel."""
        write_marks(axes, [(mark.name, mark.value / self.across.scale.factor) for mark in self.picture.marks])

    def write_legend(self, *others: Line2D, bounded: bool, joined: bool = True) -> None:
        """Write label of the horizontal axis and legend, with other entries behind the series."""
        self.figure.supxlabel(self.across.label, y=0.105, fontsize=16)
        handles = [series_handle(number, name) for number, name in enumerate(self.names) if name]
        if not self.points.fits.all():
            handles.append(point_handle("does not fit", MUTED, size=9, markerfacecolor="white"))
            handles[-1].set_linestyle(":")
        for handle in () if joined else handles:
            handle.set_linestyle("none")
        write_study_legend(self.figure, [*handles, *([bounds_handle()] if bounded else []), *others])


def bounds_handle() -> Line2D:
    return Line2D([], [], color=ALARM, linewidth=4, label="boundary of what fits")


def write_study_legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Write the legend, in two rows from six entries on."""
    rows = 2 if len(handles) > _IN_A_ROW else 1
    write_legend(figure, handles, rows=rows, fontsize=13.5, columnspacing=1.5, handletextpad=0.5)


def study_slide(rows: Sequence[StudyCells], picture: StudyPicture, note: str = "") -> StudySlide:
    """Return the empty slide of a picture, or raise InputError where no row is left to draw.

    The subtitle ends with `note`, by default with the meaning of hollow points.
    """
    from pandas import DataFrame

    shown = shown_rows(rows, picture)
    if not note and any(not row["fits"] for row in shown):
        note = "; hollow where it does not fit, replayed without a capacity"
    figure = new_figure(picture.title, (picture.subtitle or _shared(shown, picture)) + _origin_note(shown) + note)
    xs, ys = ([cell(row, column) for row in shown] for column in (picture.x, picture.y))
    across, up = study_axis(picture.x, xs, picture.x_label), study_axis(picture.y, ys, picture.y_label)
    points = DataFrame(
        {
            "x": map(across.place, xs),
            "y": map(up.place, ys),
            "fits": [bool(row["fits"]) for row in shown],
            "series": [cell_text(row[picture.by]) if picture.by else "" for row in shown],
            "panel": [cell_text(row[picture.panels]) if picture.panels else "" for row in shown],
            "value": [row[picture.value] if picture.value else None for row in shown],
            "capacity": [row.get(_CAPACITY) for row in shown],
        }
    )
    left = min(0.2, 0.055 + 0.0072 * max(len(up.text(y)) for y in ys)) if picture.value else 0.075
    every = panel_axes(figure, _panel_titles(shown, picture.panels), marked=bool(picture.marks), left=left)
    inside = (group for _, group in points.groupby("panel", sort=False))
    return StudySlide(picture, figure, across, up, points, list(zip(every, inside, strict=True)))


def _panel_titles(rows: Sequence[StudyCells], column: str) -> tuple[str, ...]:
    """Return the titles of panels in the order of their rows; of the only one, without a column, it is empty."""
    if not column:
        return ("",)
    values = ["None" if (value := row[column]) is None else value for row in rows]
    axis = study_axis(column, values)
    return tuple(axis.title(value) for value in dict.fromkeys(values))


def _origin_note(rows: Sequence[StudyCells]) -> str:
    """Return a note where kernel times are of a datasheet or another card: `; kernel times are ...`."""
    bases = {str(row.get(KERNEL_TIMES) or "") for row in rows}
    words = {"datasheet": "datasheet peaks", "carried over": "carried over from another card"}
    found = [text for basis, text in words.items() if basis in bases]
    return f"; {'' if len(bases) == 1 else 'some '}kernel times are {' or '.join(found)}" if found else ""


def _shared(rows: Sequence[StudyCells], picture: StudyPicture) -> str:
    varied = {picture.x, picture.y, picture.value, picture.by, picture.panels}
    said = []
    for column, what in (("network", ""), ("batch_size", "batch size "), ("hardware", "on "), ("policy", "")):
        values = {cell_text(row[column]) for row in rows if column in row}
        if column not in varied and len(values) == 1:
            said.append(f"{what}{values.pop()}")
    return ", ".join(said) or f"{len(rows)} points"


def lines_figure(rows: Sequence[StudyCells], picture: StudyPicture) -> Figure:
    """Draw a line for each value of `by`, pale and hollow where it does not fit.

    Raises:
        InputError: no row is left to draw, or two points of a line share an `x`.
    """
    slide = study_slide(rows, picture)
    left = False
    for axes, inside in slide.panels:
        _scale_axes(axes, slide)
        for number, name in enumerate(slide.names):
            left |= _draw_line(axes, inside[inside.series == name], slide, number)
        if picture.y.endswith("performance_ratio"):
            axes.axhline(_WHOLE / slide.up.scale.factor, color=MUTED, linestyle=DASHES, linewidth=2, zorder=1)
        slide.write_marks(axes)
        ruled(axes, "y")
        spec = axes.get_subplotspec()
        assert spec is not None
        if spec.is_first_col():
            axes.set_ylabel(slide.up.label)
    slide.write_legend(bounded=left)
    return slide.figure


def _scale_axes(axes: Axes, slide: StudySlide) -> None:
    if names := slide.across.names:
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.4, len(names) - 0.6)
    else:
        quantity_axis(axes.xaxis, slide.points.x.tolist(), panels=len(slide.panels))
    ys = slide.points.y.tolist()
    steep = min(ys) > 0 and max(ys) > 30 * min(ys) and not slide.picture.y.endswith("_ratio")
    quantity_axis(axes.yaxis, ys, from_zero=not steep)


def _draw_line(axes: Axes, line: "DataFrame", slide: StudySlide, number: int) -> bool:
    """Draw one line; return whether it crosses the boundary of what fits, which a bar marks."""
    color, marker = look(number)
    points = list(line[["x", "y", "fits"]].sort_values(["x", "y"]).itertuples(index=False))
    if twice := [one.x for one, other in pairwise(points) if one.x == other.x]:
        raise InputError(
            f"picture {slide.picture.name!r}: found two points of one line at {slide.picture.x} {twice[0]:g} "
            f"{slide.across.scale.unit}".rstrip()
            + ", expected one; choose among them with where, by or panels"
        )
    left = False
    for one, other in pairwise(points):
        whole = one.fits and other.fits
        style = {"linewidth": 2.8} if whole else {"linewidth": 1.6, "linestyle": ":", "alpha": 0.6}
        axes.plot((one.x, other.x), (one.y, other.y), color=color, zorder=3 if whole else 2, **style)
        if one.fits != other.fits:
            edge = one if one.fits else other
            axes.plot(edge.x, edge.y, "|", color=ALARM, markersize=26, markeredgewidth=4, zorder=4)
            left = True
    for x, y, fits in points:
        face, size = (color, 8) if fits else ("white", 6)
        axes.plot(x, y, marker, color=color, markersize=size, markerfacecolor=face, markeredgewidth=1.5, zorder=5)
    return left


def pareto_figure(rows: Sequence[StudyCells], picture: StudyPicture) -> Figure:
    """Draw a point for each row, hollow where it does not fit, and the front of those that fit.

    Over memory in use the capacity is drawn too. Raises InputError where no row is left to draw.
    """
    slide = study_slide(rows, picture)
    limited = False
    for axes, inside in slide.panels:
        quantity_axis(axes.xaxis, slide.points.x.tolist(), panels=len(slide.panels))
        quantity_axis(axes.yaxis, slide.points.y.tolist())
        fitting = inside[inside.fits][["x", "y"]].itertuples(index=False, name=None)
        unbeaten = front(list(fitting), picture.x, picture.y)
        axes.plot([x for x, _ in unbeaten], [y for _, y in unbeaten], zorder=3, **_FRONT)
        for point in inside.itertuples():
            color, marker = look(slide.names.index(point.series))
            face, size = (color, 11) if point.fits else ("white", 8)
            axes.plot(point.x, point.y, marker, color=color, markerfacecolor=face, markersize=size, zorder=4)
        limit = _limit(inside, slide.across) if picture.x == _USED else None
        if limit is not None:
            limited = True
            axes.axvline(limit, color=ALARM, linewidth=3, zorder=2)
        slide.write_marks(axes)
        ruled(axes, "both")
    slide.panels[0][0].set_ylabel(slide.up.label)
    slide.write_legend(Line2D([], [], label="unbeaten", **_FRONT), bounded=limited, joined=False)
    return slide.figure


def _limit(points: "DataFrame", across: StudyAxis) -> float | None:
    """Return the common capacity of all points, else the most memory of those that fit if others do not."""
    capacities = points.capacity.dropna().unique()
    if len(capacities):
        return across.place(capacities[0].item()) if len(capacities) == 1 else None
    fitting = points.x[points.fits]
    return float(fitting.max()) if 0 < len(fitting) < len(points) else None


def front(points: Sequence[tuple[float, float]], x: str, y: str) -> list[tuple[float, float]]:
    """Return the Pareto front of points, from left to right."""
    signs = [-1 if best(column, (0.0, 1.0)) else 1 for column in (x, y)]
    costs = [(signs[0] * across, signs[1] * up) for across, up in points]
    return sorted({point for point, kept in zip(points, pareto_front(costs), strict=True) if kept})
