"""Policies as points: the time of an iteration against the most memory in use, and the front of those unbeaten."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from vdnnsim.analysis.columns import COLUMNS
from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.report.caveats import peaks_note
from vdnnsim.report.comparison import comparison_title
from vdnnsim.report.findings import caption
from vdnnsim.report.labels import fold_label, joined_labels
from vdnnsim.report.plots.names import LINE_PIXELS, MARKER_PIXELS, around, near_groups, write_names
from vdnnsim.report.plots.style import INK, MUTED, as_png, mark_capacity, new_figure, plain_ticks, ruled, write
from vdnnsim.report.scale import Scale, byte_scale, time_scale

_FRONT, _OTHER = "#0072b2", "#8fb8d4"
_POINTS: Final = {True: 14, False: 11}
"""Size of type of what is on the front, and of what is not."""
_LABEL_WIDTH = 26
_LOGARITHMIC_FROM = 6.0
"""Ratio of largest to least from which an axis is logarithmic."""


def comparison_figure(comparison: Comparison) -> Figure:
    """Draw every policy that has a plan; hollow those that do not fit."""
    figure = new_figure(
        comparison_title(comparison), caption(comparison.result) + peaks_note(comparison.result.kernels)
    )
    axes = figure.add_axes((0.075, 0.16, 0.9, 0.68))
    capacity = comparison.result.server.gpu.memory_bytes
    memory = byte_scale((capacity, *(row.metrics.max_memory_bytes for row in comparison.result.slowest)))
    seconds = time_scale(row.metrics.iteration_s for row in comparison.result.slowest)
    marks = _marks(comparison, memory, seconds)
    _draw_axes(axes, marks, capacity / memory.factor, memory, seconds)
    _draw_front(axes, [mark for mark in marks if mark.on_front])
    for mark in marks:
        axes.plot(mark.x, mark.y, **_look(on_front=mark.on_front, fits=mark.fits))
    limit = capacity / memory.factor
    mark_capacity(axes, limit, capacity)
    left_out = _write_names(figure, axes, marks, limit)
    _write_legend(figure, marks, left_out)
    return figure


draw_comparison = as_png(comparison_figure)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A point, in the units of the axes, and the policies that it stands for."""

    x: float
    y: float
    names: tuple[str, ...]
    on_front: bool
    fits: bool


def _marks(comparison: Comparison, memory: Scale, seconds: Scale) -> list[_Mark]:
    """Return the points, those whose names matter most first."""

    def mark(row: PolicyResult, names: tuple[str, ...], *, on_front: bool, fits: bool) -> _Mark:
        x, y = row.metrics.max_memory_bytes / memory.factor, row.metrics.iteration_s / seconds.factor
        return _Mark(x, y, names, on_front, fits)

    # The ends of the front, which the title names, come before all others.
    order = sorted(
        comparison.standings,
        key=lambda each: (not (each.on_front and 1 in (each.time_rank, each.memory_rank)), not each.on_front),
    )
    fitting = [mark(each.row, each.policies, on_front=each.on_front, fits=True) for each in order]
    return fitting + [mark(row, (row.policy,), on_front=False, fits=False) for row in comparison.unfit]


def _look(*, on_front: bool, fits: bool) -> dict[str, Any]:
    color = _FRONT if on_front else _OTHER
    return {
        "linestyle": "",
        "marker": "o",
        "markersize": 11 if on_front else 8,
        "markerfacecolor": color if fits else "white",
        "markeredgecolor": "white" if fits else MUTED,
        "zorder": 5 if on_front else 4,
    }


def _draw_axes(axes: Axes, marks: list[_Mark], limit: float, memory: Scale, seconds: Scale) -> None:
    across, up = [limit, *(mark.x for mark in marks)], [mark.y for mark in marks] or [1.0]
    for values, axis, set_scale, set_limits in (
        (across, axes.xaxis, axes.set_xscale, axes.set_xlim),
        (up, axes.yaxis, axes.set_yscale, axes.set_ylim),
    ):
        low, high = min(values), max(values)
        if high <= _LOGARITHMIC_FROM * low:
            margin = 0.1 * (high - low) or 0.1 * high
            set_limits(low - margin, high + margin)
            continue
        set_scale("log")
        margin = (high / low) ** 0.08
        set_limits(low / margin, high * margin)
        plain_ticks(axis)
    axes.set_xlabel(f"{COLUMNS['max_memory_bytes'].label}, {memory.unit}")
    axes.set_ylabel(f"{COLUMNS['iteration_s'].label}, {seconds.unit}")
    ruled(axes, "both")


def _draw_front(axes: Axes, front: list[_Mark]) -> None:
    """Draw the stairs below and left of which there is no policy."""
    places = sorted((mark.x, mark.y) for mark in front)
    axes.step([x for x, _ in places], [y for _, y in places], where="post", color=_FRONT, linewidth=1.5, zorder=2)


def _write_names(figure: Figure, axes: Axes, marks: list[_Mark], limit: float) -> int:
    """Write the names of the points where there is room for them; return how many there is none for."""
    transformed = (axes.transData.transform((mark.x, mark.y)) for mark in marks)
    places = [(float(x), float(y)) for x, y in transformed]
    groups = near_groups(places, [(mark.on_front, mark.fits) for mark in marks])
    points = [places[group[0]] for group in groups]
    texts = [_name(figure, [marks[number] for number in group]) for group in groups]
    line_x = axes.transData.transform((limit, 1))[0]
    window = axes.get_window_extent()
    dots = [around((x, y), (x, y), MARKER_PIXELS) for x, y in places]
    lines = [around((line_x, window.y0), (line_x, window.y1), LINE_PIXELS)]
    stairs = sorted(place for place, mark in zip(places, marks, strict=True) if mark.on_front)
    for (x, y), (next_x, next_y) in pairwise(stairs):
        lines.append(around((x, y), (next_x, y), LINE_PIXELS))
        lines.append(around((next_x, next_y), (next_x, y), LINE_PIXELS))
    written = write_names(figure, axes, points, texts, dots, lines)
    left_out = 0
    for group, is_written, (x, _) in zip(groups, written, points, strict=True):
        if not is_written and marks[group[0]].on_front:
            _write_over(axes, marks[group[0]], left=x > window.x0 + window.width / 2)
        elif not is_written:
            left_out += len(group)
    return left_out


def _write_over(axes: Axes, mark: _Mark, *, left: bool) -> None:
    """Write the name of a point of the front over whatever is there: the text speaks of it."""
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}
    look = {"fontsize": _POINTS[True], "fontweight": "bold", "color": INK, "bbox": box, "zorder": 7}
    side, shift = ("right", (-12, 12)) if left else ("left", (12, 12))
    write(axes, joined_labels(mark.names), (mark.x, mark.y), shift, ha=side, **look)


def _name(figure: Figure, marks: list[_Mark]) -> Text:
    first = marks[0]
    return figure.text(
        0.5,
        0.5,
        fold_label(joined_labels(name for mark in marks for name in mark.names), _LABEL_WIDTH),
        fontsize=_POINTS[first.on_front],
        fontweight="bold" if first.on_front else "normal",
        color=INK if first.fits else MUTED,
        ha="center",
        va="center",
        linespacing=1.1,
        zorder=6,
    )


def _write_legend(figure: Figure, marks: list[_Mark], left_out: int) -> None:
    kinds = (
        ("unbeaten: none takes less of one and no more of the other", True, True),
        ("fits", False, True),
        ("does not fit", False, False),
    )
    present = {(mark.on_front, mark.fits) for mark in marks}
    handles = [
        Line2D([], [], label=label, **_look(on_front=on_front, fits=fits))
        for label, on_front, fits in kinds
        if (on_front, fits) in present
    ]
    if left_out:
        handles.append(Line2D([], [], linestyle="", label=f"{left_out} without a name, for want of room"))
    figure.legend(handles=handles, loc="lower center", ncols=max(len(handles), 1), frameon=False)
