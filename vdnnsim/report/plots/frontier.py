"""Picture of a frontier: the curve of the planner, its lower bound, and other policies as points."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.analysis.columns import COLUMNS
from vdnnsim.analysis.frontier import Frontier, PolicyTimes
from vdnnsim.analysis.results import Setup
from vdnnsim.report.caveats import peaks_note
from vdnnsim.report.findings import caption
from vdnnsim.report.palette import INK, MUTED, SERIES_COLORS
from vdnnsim.report.plots.point_labels import Named, Place, write_names
from vdnnsim.report.plots.series import MARKERS
from vdnnsim.report.plots.style import as_png, mark_capacity, new_figure, point_handle, ruled, write_legend
from vdnnsim.report.scale import Scale, byte_scale, time_scale
from vdnnsim.units import format_seconds

_PLAN, _GAP, _IMPOSSIBLE = SERIES_COLORS[0], "#a9cbe3", "#ececec"
_POLICIES: Final = SERIES_COLORS[1:]
_TALLEST: Final = 1.75
"""Policies slower than so many times the fastest are drawn at the upper edge."""
_STEEPEST: Final = 6.0
"""The curve is cut at so many times the fastest."""
_BELOW, _ABOVE = 0.22, 0.25
"""Margins below and above, as shares of the range that is shown."""
_EDGE = 0.1
"""Share of the width; nearer to an edge the name of a line stands on its inner side."""
_CURVE: Final[Any] = {"linewidth": 4, "marker": "o", "markersize": 8, "markeredgecolor": "white"}
_EDGE_HEIGHT = 0.025
"""Share of the height between the upper edge and the points drawn there."""
_DASHED: Final[Any] = {"linewidth": 1.6, "linestyle": (0, (3, 2))}


def frontier_figure(asked: Setup, frontier: Frontier, title: str, gap: str) -> Figure:
    """Draw curve and bound of the planner, and each policy where it fits; `gap` is text for the subtitle."""
    figure = new_figure(title, "; ".join(filter(None, (caption(asked), gap))) + peaks_note(frontier.kernels))
    axes = figure.add_axes((0.075, 0.16, 0.9, 0.68))
    sizes = [
        *(each.capacity_bytes for each in frontier.points),
        *(nbytes for each in frontier.policies for nbytes, _ in each.times),
    ]
    memory, seconds = byte_scale(sizes), time_scale(each.plan.iteration_s for each in frontier.points)
    _draw_axes(axes, sizes, _heights(frontier), memory, seconds)
    curves = _draw_curves(axes, frontier, memory, seconds)
    policies = [each for each in enumerate(frontier.policies) if each[1].times]
    named = [_draw_policy(axes, each, number, memory, seconds) for number, each in policies]
    left_out = _write_names(axes, named, curves, _draw_limit(axes, asked, memory))
    _write_legend(figure, frontier, named, left_out)
    return figure


draw_frontier = as_png(frontier_figure)


def _heights(frontier: Frontier) -> tuple[float, float]:
    curve = [each.plan.iteration_s for each in frontier.points]
    fastest = min([*curve, *(each.bound.seconds for each in frontier.points if each.bound is not None)])
    others = (seconds for each in frontier.policies for _, seconds in each.times)
    shown = [seconds for seconds in others if seconds <= _TALLEST * fastest]
    highest = max([min(max(curve), _STEEPEST * fastest), *shown])
    room = highest - fastest or 0.1 * fastest
    return fastest - _BELOW * room, highest + _ABOVE * room


def _draw_axes(axes: Axes, sizes: list[int], heights: tuple[float, float], memory: Scale, seconds: Scale) -> None:
    low, high = min(sizes) / memory.factor, max(sizes) / memory.factor
    margin = 0.04 * (high - low) or 0.1 * high
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(heights[0] / seconds.factor, heights[1] / seconds.factor)
    axes.set_xlabel(f"GPU memory, {memory.unit}")
    axes.set_ylabel(f"{COLUMNS['iteration_s'].label}, {seconds.unit}")
    ruled(axes, "both")


def _draw_curves(axes: Axes, frontier: Frontier, memory: Scale, seconds: Scale) -> list[list[Place]]:
    """Draw plan and bound up to the right edge, where they are constant; return their points."""
    edge = axes.get_xlim()[1]
    points = [(each.capacity_bytes / memory.factor, each) for each in frontier.points]
    points.append((edge, points[-1][1]))
    plan = [(x, each.plan.iteration_s / seconds.factor) for x, each in points]
    axes.plot(*zip(*plan, strict=True), color=_PLAN, zorder=6, markevery=slice(len(plan) - 1), **_CURVE)
    bound = [(x, each.bound.seconds / seconds.factor) for x, each in points if each.bound is not None]
    bounds = [each.bound for _, each in points if each.bound is not None]
    if bounds:
        across, up = zip(*bound, strict=True)
        of_class = "" if bounds[0].holds_for.recomputes else " of schedules that recompute nothing"
        axes.fill_between(across, axes.get_ylim()[0], up, color=_IMPOSSIBLE, linewidth=0, zorder=1)
        axes.fill_between(across, up, [y for x, y in plan if x in across], color=_GAP, linewidth=0, zorder=2)
        axes.plot(across, up, color=INK, zorder=8, **_DASHED)
        look: Any = {"transform": axes.transAxes, "ha": "right", "va": "bottom", "color": MUTED, "zorder": 2}
        axes.text(0.99, 0.025, f"lower bound{of_class}", **look)
    return [plan, bound]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A policy in the units of the axes; `looks` is whether it looks at the capacity, and so was tried in several."""

    name: str
    places: tuple[Place, ...]
    looks: bool


def _draw_policy(axes: Axes, policy: PolicyTimes, number: int, memory: Scale, seconds: Scale) -> _Drawn:
    """Draw a policy as a point, or as points joined by a line; at the upper edge if all are above it."""
    bottom, top = axes.get_ylim()
    edge = top - _EDGE_HEIGHT * (top - bottom)
    found = [(nbytes / memory.factor, time_s / seconds.factor) for nbytes, time_s in policy.times]
    inside = tuple((x, y) for x, y in found if y <= edge)
    cut, looks = not inside, len(found) > 1
    places = inside or tuple((x, edge) for x, _ in found)
    axes.plot(
        *zip(*places, strict=True),
        color=_POLICIES[number % len(_POLICIES)],
        linewidth=1.5,
        drawstyle="steps-post",
        marker="^" if cut else "." if looks else MARKERS[(number + 1) % len(MARKERS)],
        markersize=12,
        markeredgecolor="white",
        clip_on=False,
        zorder=5,
    )
    name = policy.policy
    if cut:
        name += f" {format_seconds(min(time_s for _, time_s in policy.times))}"
    return _Drawn(name, places, looks)


def _draw_limit(axes: Axes, asked: Setup, memory: Scale) -> list[float]:
    gpu, (left, right) = asked.server.gpu, axes.get_xlim()
    limit = gpu.memory_bytes / memory.factor
    if not left < limit < right:
        return []
    share = (limit - left) / (right - left)
    side: Literal["left", "center", "right"] = "left" if share < _EDGE else "right" if share > 1 - _EDGE else "center"
    mark_capacity(axes, limit, gpu.memory_bytes, lift=10, side=side, zorder=3)
    return [limit]


def _write_names(axes: Axes, drawn: list[_Drawn], curves: list[list[Place]], limits: list[float]) -> int:
    look = {"fontsize": 14, "zorder": 9}
    named = [Named(each.places[len(each.places) // 2], (each.name,), (each.looks,), look) for each in drawn]
    lines = [*curves, *(each.places for each in drawn), *([(x, end) for end in axes.get_ylim()] for x in limits)]
    return write_names(axes, named, [place for line in lines for place in line], lines)


def _write_legend(figure: Figure, frontier: Frontier, named: list[_Drawn], left_out: int) -> None:
    handles = [Line2D([], [], color=_PLAN, label=frontier.planner, **_CURVE)]
    if any(each.bound is not None for each in frontier.points):
        handles.append(Line2D([], [], color=INK, label="lower bound", **_DASHED))
    if any(not each.looks for each in named):
        handles.append(point_handle("policy, where it just fits", MUTED, MARKERS[1], 12, markeredgecolor="white"))
    if any(each.looks for each in named):
        handles.append(point_handle("policy that looks at memory", MUTED, ".", 12, markeredgecolor="white"))
        handles[-1].set(linestyle="-", linewidth=1.5)
    if left_out:
        handles.append(Line2D([], [], linestyle="", label=f"{left_out} without a name"))
    write_legend(figure, handles, fontsize=14)
