"""Lines and Pareto fronts of a study: one result over an axis, or over another result."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.analysis.columns import Value
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
    known,
    shown_rows,
    study_axis,
)

_IN_A_ROW = 5
"""Entries of the legend."""


@dataclass(frozen=True, slots=True)
class StudySlide:
    """A slide on which nothing is drawn yet.

    Attributes:
        picture: what to draw.
        figure: the slide.
        rows: all that the picture shows.
        across: the horizontal axis of all panels; `up` is the vertical one.
        names: of the series, which are the values of `by`; one empty one where there is no `by`.
        panels: the axes of each, and the rows that it shows.
    """

    picture: StudyPicture
    figure: Figure
    rows: list[StudyCells]
    across: StudyAxis
    up: StudyAxis
    names: tuple[str, ...]
    panels: list[tuple[Axes, list[StudyCells]]]

    def place(self, row: StudyCells) -> tuple[float, float]:
        """Return where a row stands, in the units of the axes."""
        return self.across.place(cell(row, self.picture.x)), self.up.place(cell(row, self.picture.y))

    def write_marks(self, axes: Axes) -> None:
        """Draw the marks of the picture into a panel whose axes are scaled."""
        write_marks(axes, [(mark.name, mark.value / self.across.scale.factor) for mark in self.picture.marks])

    def write_legend(self, *others: Line2D, bounded: bool, joined: bool = True) -> None:
        """Write below what the horizontal axis measures, and what colours and forms mean, with entries for others."""
        self.figure.supxlabel(self.across.label, y=0.105, fontsize=16)
        handles = [series_handle(number, name) for number, name in enumerate(self.names) if name]
        if any(not row["fits"] for row in self.rows):
            handles.append(point_handle("does not fit", MUTED, size=9, markerfacecolor="white"))
            handles[-1].set_linestyle(":")
        for handle in () if joined else handles:
            handle.set_linestyle("none")
        write_study_legend(self.figure, [*handles, *([bounds_handle()] if bounded else []), *others])


def bounds_handle() -> Line2D:
    """Return the entry of the legend of the boundary of what fits."""
    return Line2D([], [], color=ALARM, linewidth=4, label="boundary of what fits")


def write_study_legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Write the legend below, in two rows from six entries on."""
    rows = 2 if len(handles) > _IN_A_ROW else 1
    write_legend(figure, handles, rows=rows, fontsize=13.5, columnspacing=1.5, handletextpad=0.5)


def study_slide(rows: Sequence[StudyCells], picture: StudyPicture, note: str = "") -> StudySlide:
    """Return the slide for a picture of `y` over `x`.

    Args:
        rows: of the study.
        picture: what to draw.
        note: what the subtitle says at its end; what hollow points are if not given.

    Raises:
        InputError: no row is left to draw.
    """
    shown = shown_rows(rows, picture)
    if not note and any(not row["fits"] for row in shown):
        note = "; hollow where it does not fit, replayed without a capacity"
    figure = new_figure(picture.title, common(shown, picture) + note)
    across = study_axis(picture.x, (cell(row, picture.x) for row in shown), picture.x_label)
    up = study_axis(picture.y, (cell(row, picture.y) for row in shown), picture.y_label)
    panels = distinct(shown, picture.panels)
    # Lines of cells have their names beside them.
    longest = max(len(up.text(cell(row, picture.y))) for row in shown) if picture.value else 0
    left = min(0.2, 0.055 + 0.0072 * longest) if picture.value else 0.075
    every = panel_axes(figure, panel_names(picture.panels, panels), marked=bool(picture.marks), left=left)
    inside = [(axes, rows_of(shown, picture.panels, panel)) for axes, panel in zip(every, panels, strict=True)]
    return StudySlide(picture, figure, shown, across, up, distinct(shown, picture.by), inside)


def common(rows: Sequence[StudyCells], picture: StudyPicture) -> str:
    """Return what is the same for all rows of a picture, as its study says or their columns."""
    return (picture.subtitle or _shared(rows, picture)) + origin_note(rows)


def origin_note(rows: Sequence[StudyCells]) -> str:
    """Return on what kernel times rest where that is a datasheet or another card: `; kernel times are ...`."""
    bases = {str(row.get(KERNEL_TIMES) or "") for row in rows}
    said = {"datasheet": "datasheet peaks", "carried over": "carried over from another card"}
    found = [text for basis, text in said.items() if basis in bases]
    return f"; {'' if len(bases) == 1 else 'some '}kernel times are {' or '.join(found)}" if found else ""


def _shared(rows: Sequence[StudyCells], picture: StudyPicture) -> str:
    """Return what the columns of all rows of a picture have in common."""
    varied = {picture.x, picture.y, picture.value, picture.by, picture.panels}
    said = []
    for column, what in (("network", ""), ("batch_size", "batch size "), ("hardware", "on "), ("policy", "")):
        values = distinct(rows, column) if column not in varied and column in rows[0] else ()
        if len(values) == 1:
            said.append(f"{what}{values[0]}")
    return ", ".join(said) or f"{len(rows)} points"


def distinct(rows: Sequence[StudyCells], column: str) -> tuple[str, ...]:
    """Return the values of a column in the order of the rows; one empty one where there is no column."""
    return tuple(dict.fromkeys(cell_text(row[column]) for row in rows)) if column else ("",)


def rows_of(rows: Sequence[StudyCells], column: str, value: str) -> list[StudyCells]:
    """Return the rows with one of the `distinct` values of a column; all of them where there is no column."""
    return [row for row in rows if not column or cell_text(row[column]) == value]


def panel_names(column: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return what stands above the panels: names as they are, numbers with what they count."""
    words = study_axis(column, [0]).label if column else ""
    return tuple(f"{words} {value}" if value.isdigit() else value for value in values)


_WHOLE = 1.0
"""Speed of the oracular baseline, the line to reach."""


def lines_figure(rows: Sequence[StudyCells], picture: StudyPicture) -> Figure:
    """Draw a line for each value of `by`: solid through what fits, pale and hollow through what does not.

    Raises:
        InputError: no row is left to draw, or two share one place.
    """
    slide = study_slide(rows, picture)
    left = False
    for axes, inside in slide.panels:
        _scale_axes(axes, slide)
        for number, name in enumerate(slide.names):
            left |= _draw(axes, rows_of(inside, picture.by, name), slide, number)
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
    places = [slide.place(row) for row in slide.rows]
    if names := slide.across.names:
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.4, len(names) - 0.6)
    else:
        quantity_axis(axes.xaxis, [x for x, _ in places], panels=len(slide.panels))
    ys = [y for _, y in places]
    steep = min(ys) > 0 and max(ys) > 30 * min(ys) and not slide.picture.y.endswith("_ratio")
    quantity_axis(axes.yaxis, ys, from_zero=not steep)


def _draw(axes: Axes, rows: list[StudyCells], slide: StudySlide, number: int) -> bool:
    """Draw one line; return whether it leaves what fits, which a bar across it marks."""
    color, marker = look(number)
    points = sorted((*slide.place(row), bool(row["fits"])) for row in rows)
    for (x, _, _), (following, _, _) in pairwise(points):
        if x == following:
            raise InputError(
                f"picture {slide.picture.name!r}: found two points of one line at {slide.picture.x} {x:g}, "
                "expected one; choose among them with where, by or panels"
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
