"""All GPUs of a server over one iteration, and the bandwidth of each link against its capacity."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.analysis.several_gpus import LinkUse, exchanges, link_uses, timed_copies
from vdnnsim.hardware.topology import Sharing, Way
from vdnnsim.plans.operations import Aggregation, Prefetch, Stream
from vdnnsim.report.caveats import contention
from vdnnsim.report.findings import workload_text
from vdnnsim.report.palette import ALARM, EXCHANGE, INK, MUTED, OFFLOAD, PREFETCH
from vdnnsim.report.plots.iteration.timeline import HATCH, Bar, Look, Window, draw_bars, span_bar, write_on
from vdnnsim.report.plots.style import keep_left_spine_only, name_band, new_figure, write, write_legend
from vdnnsim.report.scale import Scale, percent, rate_of_bytes_scale, time_scale
from vdnnsim.units import format_seconds

_GAP = 0.5
"""Height between two GPUs, in rows."""
_HEIGHT = 0.86
_NAMES = {Stream.COMPUTE: "kernels", Stream.MEMORY: "copies", Stream.COMMUNICATION: "gradients"}
_MOST_WRITTEN_ON = 4
"""With more GPUs rows are too low for text."""


_STRETCHES = (
    (1.05, Look("#fdd49e", "copy, as long as alone")),
    (1.5, Look("#fc8d59", "copy, up to 1.5 times as long")),
    (2.5, Look("#d7301f", "copy, up to 2.5 times as long")),
    (math.inf, Look("#67000d", "copy, longer")),
)
"""Upper ends of ranges of stretch, and the looks of their copies."""
_WAITING, _EXCHANGE = Look("#ece6b3", "waits for other GPUs"), Look(EXCHANGE, "exchange of gradients")
_COPIES = {replace(look, hatched=hatched) for _, look in _STRETCHES for hatched in (False, True)}
_EDGE = 0.8
"""Width of the white edge between copies; kernels and exchanges are too short for one."""
_BY = {
    Aggregation.CPU: "the CPU",
    Aggregation.GPU: "GPU 0",
    Aggregation.RING: "a ring",
    Aggregation.DDP: "a ring, in the buckets of DDP",
    Aggregation.DDP_VIEWS: "a ring, in the buckets of DDP",
}


def gpus_title(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> str:
    return f"{rows[0].policy} on {result.gpus} GPUs: {contention(result, rows)}"


def gpus_figure(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> Figure:
    iteration_s = max(row.metrics.iteration_s for row in rows)
    unfit = "" if rows[0].fits else ", replayed without a capacity because it does not fit"
    gradients = f"; gradients are added up by {_BY[result.gradients]}" if result.gradients else ""
    subtitle = f"one iteration of {workload_text(result)}, {format_seconds(iteration_s)}{unfit}{gradients}"
    figure = new_figure(gpus_title(result, rows), subtitle)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.15, right=0.975, top=0.86, bottom=0.2)
    places = _places(result, rows)
    window, bars = Window(0.0, iteration_s), [bar for row in rows for bar in _bars(result, row, places)]
    for are_copies, edge in ((False, 0.0), (True, _EDGE)):
        of_these = [bar for bar in bars if (bar.look in _COPIES) is are_copies]
        draw_bars(axes, of_these, window, height=_HEIGHT, edge=edge)
    for bar in bars if result.gpus <= _MOST_WRITTEN_ON else ():
        write_on(axes, window, bar, 12)
    _name_rows(axes, result, places)
    write_legend(figure, _legend(bars), fontsize=14, rows=2)
    return figure


def _places(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> dict[Stream, float]:
    """Return the streams that have anything on some GPU, from above, and their rows in a GPU's band."""
    streams = [Stream.COMPUTE]
    if any(row.trace.copies for row in rows):
        streams.append(Stream.MEMORY)
    if result.gradients:
        streams.append(Stream.COMMUNICATION)
    return {stream: float(place) for place, stream in zip(reversed(range(len(streams))), streams, strict=True)}


def _bottom(result: ScenarioResult, gpu: int, places: Mapping[Stream, float]) -> float:
    return (result.gpus - 1 - gpu) * (len(places) + _GAP)


def _bars(result: ScenarioResult, row: PolicyResult, places: Mapping[Stream, float]) -> Iterator[Bar]:
    plan, bottom = row.trace.plan, _bottom(result, row.gpu, places)
    for span in row.trace.spans_on(Stream.COMPUTE):
        yield span_bar(row.trace, span, bottom + places[Stream.COMPUTE])
    timed = timed_copies(row.trace, result.server, row.gpu)
    for (span, copy), taken in zip(row.trace.copies, timed, strict=True):
        look = replace(copy_look(taken.stretch), hatched=isinstance(copy, Prefetch))
        name = plan.buffers[copy.buffer].name.removeprefix("map ")
        yield Bar(bottom + places[Stream.MEMORY], span.start_s, span.end_s, look, name)
    assert row.server_trace is not None
    for each in exchanges(row.server_trace) if result.gradients else ():
        place = bottom + places[Stream.COMMUNICATION]
        yield Bar(place, each.arrivals_s[row.gpu], each.begin_s, _WAITING, "")
        yield Bar(place, each.begin_s, each.end_s, _EXCHANGE, plan.layers[each.layer])


def copy_look(stretch: float) -> Look:
    """Return the look of a copy by its stretch."""
    return next(look for end, look in _STRETCHES if stretch <= end)


def _name_rows(axes: Axes, result: ScenarioResult, places: Mapping[Stream, float]) -> None:
    bottoms = [_bottom(result, gpu, places) for gpu in range(result.gpus)]
    points = min(14.0, 150 / (result.gpus * len(places)) + 3)
    axes.set_yticks(
        [bottom + place for bottom in bottoms for place in places.values()],
        [_NAMES[stream] for stream in places] * result.gpus,
        fontsize=points,
    )
    for gpu, bottom in enumerate(bottoms):
        middle = bottom + (len(places) - 1) / 2
        name_band(axes, f"GPU {gpu}", middle, 15 if result.gpus <= _MOST_WRITTEN_ON else 13)
    axes.set_ylim(-0.7, bottoms[0] + places[Stream.COMPUTE] + 0.7)
    keep_left_spine_only(axes)


def _legend(bars: list[Bar]) -> list[Patch]:
    looks = dict.fromkeys(replace(bar.look, hatched=False) for bar in bars if bar.end_s > bar.start_s)
    copies = [look for _, look in _STRETCHES]
    order = sorted(looks, key=lambda look: copies.index(look) if look in copies else -1)
    handles = [Patch(facecolor=look.color, label=look.meaning) for look in order]
    if any(bar.look.hatched for bar in bars):
        handles.append(Patch(facecolor=MUTED, edgecolor="white", hatch=HATCH, linewidth=0, label="hatched: prefetch"))
    return handles


_WAY_COLORS = {Way.UP: OFFLOAD, Way.DOWN: PREFETCH}
_WAYS = {Way.UP: "up, to the host", Way.DOWN: "down, to the GPUs"}
_MOST_LINKS = 14
_USED, _FULLY_USED = 10, 112
"""Offsets of the columns right of the axes."""
_HALF = 0.44
"""Height of one direction at full rate."""


def links_title(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> str:
    uses = link_uses(result.server, rows[0].server_trace)
    if not uses:
        return f"{rows[0].policy}: no link carries anything"
    busiest = max(uses, key=lambda use: use.busiest)
    full = percent(max(busiest.full(way) for way in Way))
    return f"{rows[0].policy}: the busiest link, {busiest.link.name}, is full {full} of the time that it is in use"


def links_figure(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> Figure:
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
    handles = [Patch(facecolor=_WAY_COLORS[way], label=_WAYS[way]) for way in (Way.UP, Way.DOWN)]
    handles.append(Patch(facecolor=ALARM, label="capacity while the other direction is idle"))
    write_legend(figure, handles, fontsize=14, rows=2)
    return figure


def drawn_links(uses: tuple[LinkUse, ...]) -> tuple[LinkUse, ...]:
    """Return the busiest links, as many as fit, in their order."""
    busiest = sorted(range(len(uses)), key=lambda number: -uses[number].busiest)[:_MOST_LINKS]
    return tuple(uses[number] for number in sorted(busiest))


def _draw_link(axes: Axes, row: int, use: LinkUse, times: Scale) -> None:
    # The vertical axis points down.
    for way, sign in ((Way.UP, -1), (Way.DOWN, 1)):
        limit = row + sign * _HALF
        axes.plot((0, 1), (limit, limit), transform=axes.get_yaxis_transform(), color=ALARM, linewidth=1.2, zorder=3)
        if way not in use.curves:
            continue
        curve, capacity = use.curves[way], use.link.alone_bytes_per_s(way)
        across = [time_s / times.factor for time_s in (*curve.times_s, curve.end_s)]
        heights = [row + sign * _HALF * rate / capacity for rate in curve.rates_bytes_per_s]
        look: Any = {"step": "post", "color": _WAY_COLORS[way], "linewidth": 0, "zorder": 2}
        axes.fill_between(across, [*heights, heights[-1]], row, **look)
    axes.plot((0, 1), (row, row), transform=axes.get_yaxis_transform(), color=MUTED, linewidth=0.8, zorder=3)


def _name_links(axes: Axes, shown: tuple[LinkUse, ...]) -> None:
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
