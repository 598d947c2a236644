"""Policies as points of iteration time against peak memory, and their Pareto front."""

from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.analysis.columns import COLUMNS
from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.report.caveats import peaks_note
from vdnnsim.report.findings import caption
from vdnnsim.report.palette import INK, MUTED
from vdnnsim.report.plots.point_labels import Named, Place, write_names
from vdnnsim.report.plots.style import as_png, mark_capacity, new_figure, plain_ticks, ruled, spread, write_legend
from vdnnsim.report.scale import Scale, byte_scale, time_scale

_FRONT, _OTHER = "#0072b2", "#8fb8d4"
_ROOM = 0.1
"""Margin at both ends of an axis, as a share of it."""
_KINDS = {
    (True, True): "unbeaten: none takes less of one and no more of the other",
    (False, True): "fits",
    (False, False): "does not fit",
}
"""By whether a point is on the front, and whether it fits."""


def comparison_figure(comparison: Comparison, title: str) -> Figure:
    """Draw every policy with a plan, hollow where it does not fit."""
    result, capacity = comparison.result, comparison.result.server.gpu.memory_bytes
    figure = new_figure(title, caption(result) + peaks_note(result.kernels))
    axes = figure.add_axes((0.075, 0.16, 0.9, 0.68))
    memory = byte_scale((capacity, *(row.metrics.max_memory_bytes for row in result.slowest)))
    seconds = time_scale(row.metrics.iteration_s for row in result.slowest)
    points, limit = _points(comparison, memory, seconds), capacity / memory.factor
    across, up = [limit, *(each.place[0] for each in points)], [each.place[1] for each in points] or [1.0]
    for axis, values in ((axes.xaxis, across), (axes.yaxis, up)):
        if spread(axis, values, _ROOM):
            plain_ticks(axis)
    axes.set_xlabel(f"{COLUMNS['max_memory_bytes'].label}, {memory.unit}")
    axes.set_ylabel(f"{COLUMNS['iteration_s'].label}, {seconds.unit}")
    ruled(axes, "both")
    stairs = _draw_front(axes, sorted(each.place for each in points if each.kind[0]))
    for each in points:
        axes.plot(*each.place, **_look(each.kind))
    mark_capacity(axes, limit, capacity)
    lines = [stairs, [(limit, end) for end in axes.get_ylim()]]
    left_out = write_names(axes, points, [each.place for each in points], lines)
    present = {each.kind for each in points}
    handles = [Line2D([], [], label=label, **_look(kind)) for kind, label in _KINDS.items() if kind in present]
    if left_out:
        handles.append(Line2D([], [], linestyle="", label=f"{left_out} without a name"))
    write_legend(figure, handles)
    return figure


draw_comparison = as_png(comparison_figure)


def _points(comparison: Comparison, memory: Scale, seconds: Scale) -> list[Named]:
    """Return the points, the most important names first."""

    def point(row: PolicyResult, policies: tuple[str, ...], *, on_front: bool) -> Named:
        place = row.metrics.max_memory_bytes / memory.factor, row.metrics.iteration_s / seconds.factor
        type_: dict[str, Any] = {"fontsize": 14, "fontweight": "bold"} if on_front else {"fontsize": 11}
        look = type_ | {"color": INK if row.fits else MUTED, "zorder": 6}
        return Named(place, policies, (on_front, row.fits), look, is_insisted=on_front)

    # The title names the ends of the front.
    order = sorted(
        comparison.standings,
        key=lambda each: (not (each.on_front and 1 in (each.time_rank, each.memory_rank)), not each.on_front),
    )
    fitting = [point(each.row, each.policies, on_front=each.on_front) for each in order]
    return fitting + [point(row, (row.policy,), on_front=False) for row in comparison.unfit]


def _look(kind: tuple[bool, ...]) -> dict[str, Any]:
    on_front, fits = kind
    return {
        "linestyle": "",
        "marker": "o",
        "markersize": 11 if on_front else 8,
        "markerfacecolor": (_FRONT if on_front else _OTHER) if fits else "white",
        "markeredgecolor": "white" if fits else MUTED,
        "zorder": 5 if on_front else 4,
    }


def _draw_front(axes: Axes, front: list[Place]) -> list[Place]:
    """Draw the front as stairs; return their corners."""
    corners = front[:1] + [corner for (_, y), (x, next_y) in pairwise(front) for corner in ((x, y), (x, next_y))]
    axes.plot([x for x, _ in corners], [y for _, y in corners], color=_FRONT, linewidth=1.5, zorder=2)
    return corners
