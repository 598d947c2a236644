"""Spans and stalls as bars over time: their colours, what these mean, and what is written on a wide enough bar."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from vdnnsim.plan.operations import AllReduce, Compute, Offload, Prefetch, Stream
from vdnnsim.report.plots.style import (
    EXCHANGE,
    INK,
    LIGHT_COLORS,
    OFFLOAD,
    ON_DEMAND,
    PHASE_COLORS,
    PREFETCH,
    STALL_COLORS,
    keep_left_spine_only,
)
from vdnnsim.report.plots.window import Window
from vdnnsim.trace import IterationTrace, Span, Stall

_SEEN: Final = 0.0005
"""Share of the width of an axis that a bar needs to be seen: more than half a pixel."""
_FRACTION_PER_CHARACTER: Final = {13: 0.0088, 12: 0.0082}
"""A bar gets its name written on it if it has so much of the width for every character of that size in points."""


def look(trace: IterationTrace, span: Span) -> tuple[str, str, str]:
    """Return the colour of a span, what the colour means, and what to write on the span."""
    plan = trace.plan
    operation = plan.operations[span.operation]
    if isinstance(operation, Compute):
        return PHASE_COLORS[operation.phase], operation.phase.value, plan.layers[operation.layer]
    if isinstance(operation, AllReduce):
        return EXCHANGE, "exchange of gradients", plan.layers[operation.layer]
    assert isinstance(operation, Offload | Prefetch)
    name = plan.buffers[operation.buffer].name
    if isinstance(operation, Offload):
        return OFFLOAD, "offload", name
    return (ON_DEMAND, "fetch on demand", name) if operation.on_demand else (PREFETCH, "prefetch", name)


def draw_bars(
    axes: Axes, bars: Iterable[tuple[float, str, Span | Stall]], window: Window, *, height: float, edge: float
) -> None:
    """Draw what a window shows of spans and stalls, and scale the horizontal axis.

    Args:
        axes: those of the window.
        bars: the row, the colour and the thing.
        window: what the axes show.
        height: of a bar, in rows.
        edge: width of the white line around a bar.
    """
    intervals: defaultdict[tuple[float, str], list[tuple[float, float]]] = defaultdict(list)
    for row, color, thing in bars:
        if window.shows(thing):
            intervals[row, color].append(window.bar(thing))
    for (row, color), places in intervals.items():
        # One collection per colour, for thousands of separate patches would take seconds to draw.
        band = row - height / 2, height
        axes.broken_barh(places, band, facecolors=color, edgecolors="white", linewidth=edge, zorder=2)
    axes.set_xlim(0, (window.end_s - window.start_s) / window.times.factor)
    axes.set_xlabel(f"time{window.since}, {window.times.unit}")
    keep_left_spine_only(axes)


def write_on(
    axes: Axes, window: Window, thing: Span | Stall, row: float, text: str, color: str, *, points: int
) -> bool:
    """Write on a bar of a colour if it is wide enough, and return whether it is."""
    fits = window.shown_fraction(thing) >= _FRACTION_PER_CHARACTER[points] * len(text)
    if fits:
        start, length = window.bar(thing)
        ink = INK if color in LIGHT_COLORS else "white"
        axes.text(start + length / 2, row, text, ha="center", va="center", fontsize=points, color=ink, zorder=4)
    return fits


def color_patches(traces: Sequence[IterationTrace], windows: Sequence[Window]) -> list[Patch]:
    """Return a patch for each colour that is seen; a stall has the colour of the copy that it waits for."""
    names: dict[str, str] = {}
    for trace in traces:
        for stream in Stream:
            for span in trace.spans_on(stream):
                color, meaning, _ = look(trace, span)
                names.setdefault(color, meaning if stream is Stream.COMPUTE else f"{meaning} (and its stalls)")
        for stall in trace.stalls:
            if any(window.shows(stall) and window.shown_fraction(stall) >= _SEEN for window in windows):
                names.setdefault(STALL_COLORS[stall.cause], f"stall: {stall.cause.value}")
    return [Patch(facecolor=color, label=name) for color, name in names.items()]
