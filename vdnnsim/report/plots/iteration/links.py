"""The bandwidth of each link over time against its capacity: what goes up to the host above its axis, down below."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vdnnsim.analysis.link_loads import LinkUse, link_uses
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.hardware.topology import Sharing, Way
from vdnnsim.report.findings import workload_text
from vdnnsim.report.palette import ALARM, INK, MUTED, OFFLOAD, PREFETCH
from vdnnsim.report.plots.style import keep_left_spine_only, new_figure, write, write_legend
from vdnnsim.report.scale import Scale, percent, rate_of_bytes_scale, time_scale
from vdnnsim.units import format_seconds

_COLORS = {Way.UP: OFFLOAD, Way.DOWN: PREFETCH}
_NAMES = {Way.UP: "up, to the host", Way.DOWN: "down, to the GPUs"}
_MOST_LINKS = 14
_USED, _FULLY_USED = 10, 112
"""Where the columns right of the axes begin."""
_HALF = 0.44
"""Height of a direction at its capacity."""


def links_title(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> str:
    """Return what the picture says."""
    uses = link_uses(result.server, rows[0].server_trace)
    if not uses:
        return f"{rows[0].policy}: no link carries anything"
    busiest = max(uses, key=lambda use: use.busiest)
    full = percent(max(busiest.full(way) for way in Way))
    return f"{rows[0].policy}: the busiest link, {busiest.link.name}, is full {full} of the time that it is in use"


def links_figure(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> Figure:
    """Draw what the links carry over one iteration of a policy on all GPUs."""
    uses = link_uses(result.server, rows[0].server_trace)
    shown = drawn_links(uses)
    iteration_s = max(row.metrics.iteration_s for row in rows)
    note = f"; the {len(shown)} busiest of {len(uses)} links" if len(shown) < len(uses) else ""
    subtitle = f"one iteration of {workload_text(result)} on {result.gpus} GPUs, {format_seconds(iteration_s)}{note}"
    figure = new_figure(links_title(result, rows), subtitle)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.19, right=0.83, top=0.83, bottom=0.17)
    times = time_scale((iteration_s,))
    for row, use in enumerate(shown):
        _draw_link(axes, row, use, times)
    _name_links(axes, shown)
    end, bottom = iteration_s / times.factor, max(len(shown), 2) - 0.45
    axes.set(xlim=(0, end), ylim=(bottom, -0.55), xlabel=f"time, {times.unit}")
    handles = [Patch(facecolor=_COLORS[way], label=_NAMES[way]) for way in (Way.UP, Way.DOWN)]
    handles.append(Patch(facecolor=ALARM, label="capacity while the other direction is idle"))
    write_legend(figure, handles, fontsize=14, rows=2)
    return figure


def drawn_links(uses: tuple[LinkUse, ...]) -> tuple[LinkUse, ...]:
    """Return the links that there is room for, the busiest, in their order."""
    busiest = sorted(range(len(uses)), key=lambda number: -uses[number].busiest)[:_MOST_LINKS]
    return tuple(uses[number] for number in sorted(busiest))


def _draw_link(axes: Axes, row: int, use: LinkUse, times: Scale) -> None:
    # The vertical axis points down, so what goes up is drawn toward lower numbers.
    for way, sign in ((Way.UP, -1), (Way.DOWN, 1)):
        limit = row + sign * _HALF
        axes.plot((0, 1), (limit, limit), transform=axes.get_yaxis_transform(), color=ALARM, linewidth=1.2, zorder=3)
        if way not in use.curves:
            continue
        curve, capacity = use.curves[way], use.link.alone_bytes_per_s(way)
        moments = [time_s / times.factor for time_s in (*curve.times_s, curve.end_s)]
        heights = [row + sign * _HALF * rate / capacity for rate in curve.rates_bytes_per_s]
        axes.fill_between(moments, [*heights, heights[-1]], row, step="post", color=_COLORS[way], linewidth=0, zorder=2)
    axes.plot((0, 1), (row, row), transform=axes.get_yaxis_transform(), color=MUTED, linewidth=0.8, zorder=3)


def _name_links(axes: Axes, shown: tuple[LinkUse, ...]) -> None:
    """Write left of each link which it is and what it can carry, and right of it how much of that was used."""
    points = 14 if len(shown) <= _MOST_LINKS // 2 else 12
    labels = []
    for use in shown:
        rates = [use.link.alone_bytes_per_s(way) for way in (Way.UP, Way.DOWN)]
        scale = rate_of_bytes_scale(rates)
        limit = scale.text(rates[1]) if rates[0] == rates[1] else f"{scale.number(rates[0])} / {scale.text(rates[1])}"
        if use.link.sharing is Sharing.SHARED:
            limit += " in all"
        labels.append(f"{use.link.name}\n{limit}")
    axes.set_yticks(range(len(shown)), labels, fontsize=points)
    right, look = axes.get_yaxis_transform(), {"va": "center", "fontsize": points, "annotation_clip": False}
    for row, use in enumerate(shown):
        for way, shift in ((Way.UP, -_HALF / 2), (Way.DOWN, _HALF / 2)):
            color = INK if use.fraction(way) else MUTED
            cells = ((f"{way.value} {percent(use.fraction(way))}", _USED), (percent(use.full(way)), _FULLY_USED))
            for text, column in cells:
                write(axes, text, (1.0, row + shift), (column, 0), right, color=color, **look)
    for text, column in (("of capacity", _USED), ("full in use", _FULLY_USED)):
        write(axes, text, (1.0, -0.68), (column, 0), right, color=MUTED, **look)
    keep_left_spine_only(axes)
