"""All GPUs under each other: kernels, copies coloured by what contention does to them, the exchanges of gradients.

The darker a copy, the longer it took than it takes alone: one that shares a link with another takes twice as long.
Prefetches are hatched. An exchange is pale as long as its GPU waits for the others.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vdnnsim.analysis.contention import timed_copies
from vdnnsim.analysis.exchanges import exchanges
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plans.operations import Aggregation, Compute, Offload, Prefetch, Stream
from vdnnsim.report.caveats import contention
from vdnnsim.report.findings import workload_text
from vdnnsim.report.plots.style import (
    EXCHANGE,
    INK,
    LIGHT_COLORS,
    MUTED,
    PHASE_COLORS,
    keep_left_spine_only,
    name_band,
    new_figure,
    write_legend,
)
from vdnnsim.report.scale import Scale, time_scale
from vdnnsim.units import format_seconds

_BAND = 3.5
"""Height of a GPU's band, of which its streams fill three."""
_ROWS = {Stream.COMPUTE: 2.0, Stream.MEMORY: 1.0, Stream.COMMUNICATION: 0.0}
_HEIGHT = 0.86
_NAMES = {Stream.COMPUTE: "kernels", Stream.MEMORY: "copies", Stream.COMMUNICATION: "gradients"}
_FRACTION_PER_CHARACTER = 0.0088
_MOST_WRITTEN_ON = 4
"""With more GPUs a row is too low to be written on."""


@dataclass(frozen=True, slots=True)
class _Look:
    """How a bar is drawn, and what the legend calls it."""

    color: str
    meaning: str
    hatched: bool = False


@dataclass(frozen=True, slots=True)
class _Bar:
    row: float
    start_s: float
    end_s: float
    look: _Look
    text: str


_STRETCHES = (
    (1.05, _Look("#fdd49e", "copy, as long as alone")),
    (1.5, _Look("#fc8d59", "copy, up to 1.5 times as long")),
    (2.5, _Look("#d7301f", "copy, up to 2.5 times as long")),
    (math.inf, _Look("#67000d", "copy, longer")),
)
"""Upper ends of ranges of stretch, and how their copies look, from pale to dark."""
_WAITING, _EXCHANGE = _Look("#ece6b3", "waits for other GPUs"), _Look(EXCHANGE, "exchange of gradients")
_PALE = {*LIGHT_COLORS, "#fdd49e", "#fc8d59", EXCHANGE}
_COPIES = {replace(look, hatched=hatched) for _, look in _STRETCHES for hatched in (False, True)}
_EDGE = 0.8
"""Copies have a white edge, for one follows the other; kernels and exchanges are too short for one."""
_HATCH = "///"
_BY = {
    Aggregation.CPU: "the CPU",
    Aggregation.GPU: "GPU 0",
    Aggregation.RING: "a ring",
    Aggregation.DDP: "a ring, in the buckets of DDP",
    Aggregation.DDP_VIEWS: "a ring, in the buckets of DDP",
}


def gpus_title(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> str:
    """Return what the picture says."""
    return f"{rows[0].policy} on {result.gpus} GPUs: {contention(result, rows)}"


def gpus_figure(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> Figure:
    """Draw one iteration of a policy on all GPUs."""
    iteration_s = max(row.metrics.iteration_s for row in rows)
    unfit = "" if rows[0].fits else ", replayed without a capacity because it does not fit"
    gradients = f"; gradients are added up by {_BY[result.gradients]}" if result.gradients else ""
    subtitle = f"one iteration of {workload_text(result)}, {format_seconds(iteration_s)}{unfit}{gradients}"
    figure = new_figure(gpus_title(result, rows), subtitle)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.15, right=0.975, top=0.86, bottom=0.2)
    times = time_scale((iteration_s,))
    bars = [bar for row in rows for bar in _bars(result, row)]
    _draw(axes, bars, times)
    if result.gpus <= _MOST_WRITTEN_ON:
        _write(axes, bars, iteration_s, times)
    _name_rows(axes, result)
    axes.set_xlim(0, iteration_s / times.factor)
    axes.set_xlabel(f"time, {times.unit}")
    write_legend(figure, _legend(bars))
    return figure


def _bars(result: ScenarioResult, row: PolicyResult) -> Iterator[_Bar]:
    plan, bottom = row.trace.plan, (result.gpus - 1 - row.gpu) * _BAND
    for span in row.trace.spans_on(Stream.COMPUTE):
        kernel = plan.operations[span.operation]
        assert isinstance(kernel, Compute)
        look = _Look(PHASE_COLORS[kernel.phase], kernel.phase.value)
        yield _Bar(bottom + _ROWS[Stream.COMPUTE], span.start_s, span.end_s, look, plan.layers[kernel.layer])
    for copy in timed_copies(row.trace, result.server, row.gpu):
        operation = plan.operations[copy.span.operation]
        assert isinstance(operation, Offload | Prefetch)
        look = replace(copy_look(copy.stretch), hatched=isinstance(operation, Prefetch))
        name = plan.buffers[operation.buffer].name.removeprefix("map ")
        yield _Bar(bottom + _ROWS[Stream.MEMORY], copy.span.start_s, copy.span.end_s, look, name)
    assert row.server_trace is not None
    place = bottom + _ROWS[Stream.COMMUNICATION]
    for each in exchanges(row.server_trace):
        yield _Bar(place, each.arrivals_s[row.gpu], each.begin_s, _WAITING, "")
        yield _Bar(place, each.begin_s, each.end_s, _EXCHANGE, plan.layers[each.layer])


def copy_look(stretch: float) -> _Look:
    """Return how a copy is drawn that took so many times as long as alone."""
    return next(look for end, look in _STRETCHES if stretch <= end)


def _draw(axes: Axes, bars: list[_Bar], times: Scale) -> None:
    intervals: defaultdict[tuple[float, _Look], list[tuple[float, float]]] = defaultdict(list)
    for bar in bars:
        intervals[bar.row, bar.look].append((bar.start_s / times.factor, (bar.end_s - bar.start_s) / times.factor))
    for (row, look), places in intervals.items():
        # One collection per row and look, for thousands of separate patches would take seconds to draw.
        axes.broken_barh(
            places,
            (row - _HEIGHT / 2, _HEIGHT),
            facecolors=look.color,
            edgecolors="white",
            linewidth=_EDGE if look in _COPIES else 0,
            hatch=_HATCH if look.hatched else None,
            zorder=2,
        )


def _write(axes: Axes, bars: list[_Bar], iteration_s: float, times: Scale) -> None:
    """Write on each bar that is wide enough which layer or buffer it is."""
    for bar in bars:
        length_s = bar.end_s - bar.start_s
        if bar.text and length_s >= _FRACTION_PER_CHARACTER * len(bar.text) * iteration_s:
            pale = bar.look.color in _PALE
            axes.text(
                (bar.start_s + length_s / 2) / times.factor,
                bar.row,
                bar.text,
                ha="center",
                va="center",
                fontsize=12,
                color=INK if pale else "white",
                bbox={"facecolor": bar.look.color, "edgecolor": "none", "pad": 1} if bar.look.hatched else None,
                zorder=4,
            )


def _name_rows(axes: Axes, result: ScenarioResult) -> None:
    """Write beside each row which stream it is, and beside each band which GPU."""
    streams = [stream for stream in _ROWS if result.gradients or stream is not Stream.COMMUNICATION]
    bottoms = [(result.gpus - 1 - gpu) * _BAND for gpu in range(result.gpus)]
    points = min(14.0, 150 / (result.gpus * len(streams)) + 3)
    axes.set_yticks(
        [bottom + _ROWS[stream] for bottom in bottoms for stream in streams],
        [_NAMES[stream] for stream in streams] * result.gpus,
        fontsize=points,
    )
    for gpu, bottom in enumerate(bottoms):
        middle = bottom + sum(_ROWS[stream] for stream in streams) / len(streams)
        name_band(axes, f"GPU {gpu}", middle, 15 if result.gpus <= _MOST_WRITTEN_ON else 13)
    axes.set_ylim(min(_ROWS[stream] for stream in streams) - 0.7, bottoms[0] + _ROWS[Stream.COMPUTE] + 0.7)
    keep_left_spine_only(axes)


def _legend(bars: list[_Bar]) -> list[Patch]:
    looks = dict.fromkeys(replace(bar.look, hatched=False) for bar in bars if bar.end_s > bar.start_s)
    copies = [look for _, look in _STRETCHES]
    order = sorted(looks, key=lambda look: copies.index(look) if look in copies else -1)
    handles = [Patch(facecolor=look.color, label=look.meaning) for look in order]
    if any(bar.look.hatched for bar in bars):
        handles.append(Patch(facecolor=MUTED, edgecolor="white", hatch=_HATCH, linewidth=0, label="hatched: prefetch"))
    return handles
