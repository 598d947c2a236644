"""The slide of one result of a study over another: a panel for each value of a column, its axes, the legend below."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.report.palette import ALARM, MUTED
from vdnnsim.report.plots.series import panel_axes, series_handle, write_marks
from vdnnsim.report.plots.style import new_figure, point_handle, write_legend
from vdnnsim.report.study_picture import (
    KERNEL_TIMES,
    StudyAxis,
    StudyCells,
    StudyPicture,
    cell,
    cell_text,
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
