"""Heat maps of a study: a result, or the best policy, over two axes, and the boundary of what fits."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from vdnnsim.analysis.columns import Value
from vdnnsim.errors import InputError
from vdnnsim.report.labels import fold_label
from vdnnsim.report.palette import ALARM, MUTED, written_on
from vdnnsim.report.plots.series import look
from vdnnsim.report.plots.study.curves import StudySlide, bounds_handle, study_slide, write_study_legend
from vdnnsim.report.plots.style import keep_left_spine_only
from vdnnsim.report.study_picture import StudyAxis, StudyCells, StudyPicture, best, cell, shown_rows, study_axis

if TYPE_CHECKING:
    from pandas import DataFrame

_EMPTY: Final = "#f2f2f2"
_PALEST, _DARKEST = 0.08, 0.85
"""Range of the colour map; white is for what does not fit."""
_ALL: Final = "100"
_WIDTH = 1400
"""Pixels of a row of cells."""

Grid = dict[tuple[int, int], Any]
"""Best point that fits by column and row; None where no point fits."""


def heat_map_figure(rows: Sequence[StudyCells], picture: StudyPicture) -> Figure:
    """Draw a cell for each pair of values, hatched where nothing fits, with a thick line around what fits.

    Raises:
        InputError: no row is left to draw, or several share a cell without `by`.
    """
    shown = shown_rows(rows, picture)
    values = study_axis(picture.value, [cell(row, picture.value) for row in shown])
    slide = study_slide(shown, picture, _note(picture, values))
    columns, lines = (_ordered([cell(row, axis) for row in shown]) for axis in (picture.x, picture.y))
    pixels = _WIDTH / len(columns) / min(len(slide.panels), 4)
    color_of = _coloring(slide)
    seen, unfit = set[str](), False
    for axes, inside in slide.panels:
        grid = _grid(inside, slide, columns, lines)
        unfit |= None in grid.values()
        seen |= {point.series for point in grid.values() if point and picture.by}
        _draw_cells(axes, grid, picture, values, color_of, pixels)
        _draw_boundary(axes, grid)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(-0.5, len(lines) - 0.5)
        names = list(map(slide.across.text, columns))
        axes.set_xticks(range(len(columns)), names, rotation=45 if max(map(len, names)) * 14 > pixels else 0)
        axes.set_yticks(range(len(lines)), list(map(slide.up.text, lines)))
        axes.tick_params(length=0)
        keep_left_spine_only(axes)
        axes.spines["left"].set_visible(False)
    slide.panels[0][0].set_ylabel(slide.up.label)
    slide.figure.supxlabel(slide.across.label, y=0.105, fontsize=16)
    _write_legend(slide, seen, unfit=unfit)
    return slide.figure


def _note(picture: StudyPicture, values: StudyAxis) -> str:
    of = f", of the best {picture.by} that fits" if picture.by else ""
    unless = f", unless it is {_ALL}" if _is_plain(picture, values, _ALL) else ""
    return f"; in each cell {values.label}{of}{unless}"


def _is_plain(picture: StudyPicture, values: StudyAxis, text: str) -> bool:
    """Whether a number is left out: 100 % in a cell that names its best policy."""
    return bool(picture.by) and values.scale.unit == "%" and text == _ALL


def _ordered(values: list[Value]) -> list[Value]:
    """Return distinct values: numbers sorted, names in their order."""
    once = list(dict.fromkeys(values))
    return once if any(isinstance(each, str) for each in once) else sorted(once, key=float)


def _grid(points: "DataFrame", slide: StudySlide, columns: list[Value], lines: list[Value]) -> Grid:
    picture, grid = slide.picture, Grid()
    column_of = {slide.across.place(value): number for number, value in enumerate(columns)}
    line_of = {slide.up.place(value): number for number, value in enumerate(lines)}
    for (x, y), here in points.groupby(["x", "y"], sort=False):
        column, line = column_of[x], line_of[y]
        if len(here) > 1 and not picture.by:
            raise InputError(
                f"picture {picture.name!r}: found {len(here)} points at {picture.x} {columns[column]} and {picture.y} "
                f"{lines[line]}, expected one; choose among them with where, by or panels"
            )
        fitting = list(here[here.fits].itertuples())
        wanted = best(picture.value, [point.value for point in fitting]) if fitting else None
        grid[column, line] = next((each for each in fitting if each.value == wanted), None)
    return grid


def _coloring(slide: StudySlide) -> Callable[[Any], str]:
    """Return the function from a point to its colour: by its series, else by its number on a logarithmic scale."""
    if slide.picture.by:
        return lambda point: look(slide.names.index(point.series))[0]
    numbers = slide.points.value[slide.points.fits].tolist()
    is_linear = slide.picture.value.endswith("_ratio") or min(numbers, default=0) <= 0
    scaled = (Normalize if is_linear else LogNorm)(min(numbers, default=0), max(numbers, default=1))
    shades = mpl.colormaps["Blues"]
    return lambda point: to_hex(shades(_PALEST + float(scaled(point.value)) * (_DARKEST - _PALEST)))


def _draw_cells(
    axes: Axes, grid: Grid, picture: StudyPicture, values: StudyAxis, color_of: Callable[[Any], str], pixels: float
) -> None:
    for (column, line), point in grid.items():
        color, hatch = (color_of(point), None) if point else ("white", "//")
        place: Any = {"xy": (column - 0.5, line - 0.5), "width": 1, "height": 1}
        axes.add_patch(Rectangle(**place, facecolor=color, edgecolor=_EMPTY, hatch=hatch, zorder=2))
        if point is None:
            continue
        text = values.text(point.value)
        if _is_plain(picture, values, text):
            text = ""
        if picture.by and pixels >= 110:
            text = f"{fold_label(point.series, int(pixels // 9))}\n{text}"
        size = 13.5 if pixels >= 60 else 10.5
        axes.text(column, line, text, ha="center", va="center", fontsize=size, color=written_on(color), zorder=4)
    axes.set_facecolor(_EMPTY)


def _draw_boundary(axes: Axes, grid: Grid) -> None:
    for (column, line), point in grid.items():
        if point is None:
            continue
        for across, up in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            if grid.get((column + across, line + up), point) is None:
                middle = column + across / 2, line + up / 2
                ends = [(middle[0] - up / 2, middle[0] + up / 2), (middle[1] - across / 2, middle[1] + across / 2)]
                axes.plot(*ends, color=ALARM, linewidth=5, solid_capstyle="projecting", zorder=5)


def _write_legend(slide: StudySlide, seen: set[str], *, unfit: bool) -> None:
    handles: list[Artist] = [
        Patch(facecolor=look(number)[0], label=name) for number, name in enumerate(slide.names) if name in seen
    ]
    if unfit:
        label = "nothing fits" if slide.picture.by else "does not fit"
        handles += [Patch(facecolor="white", edgecolor=MUTED, hatch="//", label=label), bounds_handle()]
    if handles:
        write_study_legend(slide.figure, handles)
