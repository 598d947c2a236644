"""Policies as points: the time of an iteration against the most memory in use, and the front of those unbeaten."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.analysis.columns import COLUMNS
from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.report.caveats import peaks_note
from vdnnsim.report.comparison import comparison_title
from vdnnsim.report.findings import caption
from vdnnsim.report.palette import INK, MUTED
from vdnnsim.report.plots.names import Named, Place, write_names
from vdnnsim.report.plots.style import (
    as_png,
    mark_capacity,
    new_figure,
    plain_ticks,
    ruled,
    spread,
    write_legend,
)
from vdnnsim.report.scale import Scale, byte_scale, time_scale

_FRONT, _OTHER = "#0072b2", "#8fb8d4"
_ROOM = 0.1
"""At both ends of an axis, of what it shows."""


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
    stairs = _draw_front(axes, [mark for mark in marks if mark.on_front])
    for mark in marks:
        axes.plot(mark.x, mark.y, **_look(on_front=mark.on_front, fits=mark.fits))
    limit = capacity / memory.factor
    mark_capacity(axes, limit, capacity)
    left_out = _write_names(axes, marks, [stairs, [(limit, end) for end in axes.get_ylim()]])
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

    def mark(row: PolicyResult, names: tuple[str, ...], *, on_front: bool) -> _Mark:
        x, y = row.metrics.max_memory_bytes / memory.factor, row.metrics.iteration_s / seconds.factor
        return _Mark(x, y, names, on_front, row.fits)

    # The ends of the front, which the title names, come before all others.
    order = sorted(
        comparison.standings,
        key=lambda each: (not (each.on_front and 1 in (each.time_rank, each.memory_rank)), not each.on_front),
    )
    fitting = [mark(each.row, each.policies, on_front=each.on_front) for each in order]
    return fitting + [mark(row, (row.policy,), on_front=False) for row in comparison.unfit]


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
    for axis, values in ((axes.xaxis, across), (axes.yaxis, up)):
        if spread(axis, values, _ROOM):
            plain_ticks(axis)
    axes.set_xlabel(f"{COLUMNS['max_memory_bytes'].label}, {memory.unit}")
    axes.set_ylabel(f"{COLUMNS['iteration_s'].label}, {seconds.unit}")
    ruled(axes, "both")


def _draw_front(axes: Axes, front: list[_Mark]) -> list[Place]:
    """Draw the stairs below and left of which there is no policy; return their corners."""
    places = sorted((mark.x, mark.y) for mark in front)
    corners = places[:1] + [corner for (_, y), (x, next_y) in pairwise(places) for corner in ((x, y), (x, next_y))]
    axes.plot([x for x, _ in corners], [y for _, y in corners], color=_FRONT, linewidth=1.5, zorder=2)
    return corners


def _write_names(axes: Axes, marks: list[_Mark], lines: list[list[Place]]) -> int:
    named = [
        # The text speaks of the front.
        Named((mark.x, mark.y), mark.names, (mark.on_front, mark.fits), _type(mark), is_insisted=mark.on_front)
        for mark in marks
    ]
    return write_names(axes, named, [each.place for each in named], lines)


def _type(mark: _Mark) -> dict[str, Any]:
    look = {"fontsize": 14, "fontweight": "bold"} if mark.on_front else {"fontsize": 11, "fontweight": "normal"}
    return {**look, "color": INK if mark.fits else MUTED, "zorder": 6}


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
    write_legend(figure, handles)
