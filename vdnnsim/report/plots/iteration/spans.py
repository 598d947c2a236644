"""Spans and stalls as bars over time: their colours, what is written on them, and which interval of them axes show."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Patch

from vdnnsim.plans.operations import AllReduce, Compute, Offload, Prefetch, Stream
from vdnnsim.report.plots.style import (
    EXCHANGE,
    INK,
    LIGHT_COLORS,
    MUTED,
    OFFLOAD,
    ON_DEMAND,
    PHASE_COLORS,
    PREFETCH,
    STALL_COLORS,
    keep_left_spine_only,
)
from vdnnsim.report.scale import Scale, time_scale
from vdnnsim.trace import IterationTrace, Span, Stall
from vdnnsim.units import format_seconds

_KERNELS_AROUND = 5


_SEEN: Final = 0.0005
"""Share of the width of an axis that a bar needs to be seen: more than half a pixel."""
_FRACTION_PER_CHARACTER: Final = {13: 0.0088, 12: 0.0082}
"""A bar gets its name written on it if it has so much of the width for every character of that size in points."""


@dataclass(frozen=True, slots=True)
class Window:
    """The interval of an iteration that an axis shows."""

    start_s: float
    end_s: float

    @property
    def times(self) -> Scale:
        """The unit of its axis."""
        return time_scale((self.end_s - self.start_s,))

    @property
    def since(self) -> str:
        """What its axis adds to `time`: ` since 1.2 s`; nothing where it begins with the iteration."""
        return f" since {format_seconds(self.start_s)}" if self.start_s else ""

    def shows(self, thing: Span | Stall) -> bool:
        """Whether a part of it lies inside."""
        return thing.end_s > self.start_s and thing.start_s < self.end_s

    def shown_fraction(self, thing: Span | Stall) -> float:
        """Return how much of the width of its axis a thing takes."""
        return self.bar(thing)[1] * self.times.factor / (self.end_s - self.start_s)

    def bar(self, thing: Span | Stall) -> tuple[float, float]:
        """Return where it begins after the start of the window, and how long it is, on the axis."""
        start_s, end_s = max(thing.start_s, self.start_s), min(thing.end_s, self.end_s)
        return (start_s - self.start_s) / self.times.factor, (end_s - start_s) / self.times.factor


def magnified_window(trace: IterationTrace) -> Window:
    """Return the interval of so many kernels in which most time is lost to waits for copies.

    Of several the one around the longest wait, of these the first. Without such a wait it is the turn from forward to
    backward; in inference, the first layers.
    """
    kernels = trace.spans_on(Stream.COMPUTE)

    def around(center: int) -> tuple[int, int]:
        return max(center - _KERNELS_AROUND, 0), min(center + _KERNELS_AROUND, len(kernels)) - 1

    if waits := waits_for_copies(trace):
        numbers = {span.operation: number for number, span in enumerate(kernels)}
        waited_s = [0.0] * len(kernels)
        for stall in waits:
            waited_s[numbers[stall.blocked]] += stall.end_s - stall.start_s
        until_s = [0.0, *accumulate(waited_s)]

        def lost_s(center: int) -> tuple[float, float]:
            first, last = around(center)
            return until_s[last + 1] - until_s[first], waited_s[center]

        center = max((number for number, seconds in enumerate(waited_s) if seconds), key=lost_s)
    else:
        center = next((number for number, span in enumerate(kernels) if _is_backward(trace, span)), _KERNELS_AROUND)
    first, last = around(center)
    return Window(kernels[first].start_s, kernels[last].end_s)


def waits_for_copies(trace: IterationTrace) -> list[Stall]:
    """Return the stalls that ended with a copy."""
    return [stall for stall in trace.stalls if stall.waited_for is not None]


def _is_backward(trace: IterationTrace, span: Span) -> bool:
    kernel = trace.plan.operations[span.operation]
    return isinstance(kernel, Compute) and kernel.phase.is_backward


def connect(figure: Figure, whole: Axes, part: Axes, window: Window, times: Scale) -> None:
    """Show in the upper half, whose axis goes above it, which interval the lower half magnifies."""
    whole.xaxis.tick_top()
    whole.xaxis.set_label_position("top")
    start, end = window.start_s / times.factor, window.end_s / times.factor
    whole.axvspan(start, end, facecolor="none", edgecolor=INK, linewidth=1.5, zorder=5)
    for above, below in ((start, 0.0), (end, 1.0)):
        line = ConnectionPatch(
            (above, 0.0),
            (below, 1.0),
            coordsA=whole.get_xaxis_transform(),
            coordsB=part.transAxes,
            color=MUTED,
            linewidth=1,
        )
        figure.add_artist(line)


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
    """Draw what a window shows of things in rows, each of a colour, a white line around it, and scale the axis."""
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
