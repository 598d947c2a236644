"""Lines of a study: how a result follows one of the axes, and where each line leaves what fits."""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vdnnsim.errors import InputError
from vdnnsim.report.palette import ALARM, MUTED
from vdnnsim.report.plots.series import DASHES, look, quantity_axis
from vdnnsim.report.plots.study.slide import StudySlide, rows_of, study_slide
from vdnnsim.report.plots.style import ruled
from vdnnsim.report.study_picture import StudyCells, StudyPicture

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
