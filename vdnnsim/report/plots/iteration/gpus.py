"""All GPUs under each other: kernels, copies coloured by what contention does to them, the exchanges of gradients.

The darker a copy, the longer it took than it takes alone: one that shares a link with another takes twice as long.
Prefetches are hatched. An exchange is pale as long as its GPU waits for the others.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vdnnsim.analysis.contention import timed_copies
from vdnnsim.analysis.gradient_exchanges import exchanges
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plans.operations import Aggregation, Prefetch, Stream
from vdnnsim.report.caveats import contention
from vdnnsim.report.findings import workload_text
from vdnnsim.report.palette import EXCHANGE, MUTED
from vdnnsim.report.plots.iteration.spans import HATCH, Bar, Look, Window, draw_bars, span_bar, write_on
from vdnnsim.report.plots.style import keep_left_spine_only, name_band, new_figure, write_legend
from vdnnsim.units import format_seconds

_BAND = 3.5
"""Height of a GPU's band, of which its streams fill three."""
_ROWS = {Stream.COMPUTE: 2.0, Stream.MEMORY: 1.0, Stream.COMMUNICATION: 0.0}
_HEIGHT = 0.86
_NAMES = {Stream.COMPUTE: "kernels", Stream.MEMORY: "copies", Stream.COMMUNICATION: "gradients"}
_MOST_WRITTEN_ON = 4
"""With more GPUs a row is too low to be written on."""


_STRETCHES = (
    (1.05, Look("#fdd49e", "copy, as long as alone")),
    (1.5, Look("#fc8d59", "copy, up to 1.5 times as long")),
    (2.5, Look("#d7301f", "copy, up to 2.5 times as long")),
    (math.inf, Look("#67000d", "copy, longer")),
)
"""Upper ends of ranges of stretch, and how their copies look, from pale to dark."""
_WAITING, _EXCHANGE = Look("#ece6b3", "waits for other GPUs"), Look(EXCHANGE, "exchange of gradients")
_COPIES = {replace(look, hatched=hatched) for _, look in _STRETCHES for hatched in (False, True)}
_EDGE = 0.8
"""Copies have a white edge, for one follows the other; kernels and exchanges are too short for one."""
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
    window, bars = Window(0.0, iteration_s), [bar for row in rows for bar in _bars(result, row)]
    for are_copies, edge in ((False, 0.0), (True, _EDGE)):
        of_these = [bar for bar in bars if (bar.look in _COPIES) is are_copies]
        draw_bars(axes, of_these, window, height=_HEIGHT, edge=edge)
    for bar in bars if result.gpus <= _MOST_WRITTEN_ON else ():
        write_on(axes, window, bar, 12)
    _name_rows(axes, result)
    write_legend(figure, _legend(bars), fontsize=14, rows=2)
    return figure


def _bars(result: ScenarioResult, row: PolicyResult) -> Iterator[Bar]:
    plan, bottom = row.trace.plan, (result.gpus - 1 - row.gpu) * _BAND
    for span in row.trace.spans_on(Stream.COMPUTE):
        yield span_bar(row.trace, span, bottom + _ROWS[Stream.COMPUTE])
    timed = timed_copies(row.trace, result.server, row.gpu)
    for (span, copy), taken in zip(row.trace.copies, timed, strict=True):
        look = replace(copy_look(taken.stretch), hatched=isinstance(copy, Prefetch))
        name = plan.buffers[copy.buffer].name.removeprefix("map ")
        yield Bar(bottom + _ROWS[Stream.MEMORY], span.start_s, span.end_s, look, name)
    assert row.server_trace is not None
    place = bottom + _ROWS[Stream.COMMUNICATION]
    for each in exchanges(row.server_trace):
        yield Bar(place, each.arrivals_s[row.gpu], each.begin_s, _WAITING, "")
        yield Bar(place, each.begin_s, each.end_s, _EXCHANGE, plan.layers[each.layer])


def copy_look(stretch: float) -> Look:
    """Return how a copy is drawn that took so many times as long as alone."""
    return next(look for end, look in _STRETCHES if stretch <= end)


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


def _legend(bars: list[Bar]) -> list[Patch]:
    looks = dict.fromkeys(replace(bar.look, hatched=False) for bar in bars if bar.end_s > bar.start_s)
    copies = [look for _, look in _STRETCHES]
    order = sorted(looks, key=lambda look: copies.index(look) if look in copies else -1)
    handles = [Patch(facecolor=look.color, label=look.meaning) for look in order]
    if any(bar.look.hatched for bar in bars):
        handles.append(Patch(facecolor=MUTED, edgecolor="white", hatch=HATCH, linewidth=0, label="hatched: prefetch"))
    return handles
