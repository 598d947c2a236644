"""Streams over time: kernels by phase, copies by direction, and what the compute stream waited for.

The upper half is the whole iteration. The lower half magnifies the surroundings of the longest wait for a copy, which
shows whether copies hide behind kernels or kernels wait for copies. Where nothing is copied it magnifies the turn from
forward to backward, or the first layers where there is none.
"""

from collections import defaultdict
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Patch

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plan.operations import AllReduce, Compute, Offload, Prefetch, Stream
from vdnnsim.report.findings import place, subject, workload_text
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
    new_figure,
)
from vdnnsim.report.scale import Scale, percent, time_scale
from vdnnsim.trace import IterationTrace, Span, Stall
from vdnnsim.units import format_seconds

_STREAM_ROWS = {Stream.COMPUTE: 2.0, Stream.MEMORY: 0.0, Stream.COMMUNICATION: -1.0}
_STALL_ROW = 1.0
_HEIGHT = 0.8
_KERNELS_AROUND = 5
_FRACTION_PER_CHARACTER = 0.0088
"""A span gets its name written on it if it has so much of the picture's width for every character."""

SEEN = 0.0005
"""Share of the width of an axis that a bar needs to be seen: more than half a pixel."""


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


def timeline_subject(result: ScenarioResult) -> PolicyResult:
    """Return the policy to show: the subject of the other pictures.

    Where that copies nothing it gives way to the most stalled of those that do and fit, if there are any.
    """
    shown = subject(result)
    if shown.trace.spans_on(Stream.MEMORY):
        return shown
    copying = [each for each in result.slowest if each.fits and each.trace.spans_on(Stream.MEMORY)]
    return max(copying, key=lambda each: each.metrics.stall_s, default=shown)


def timeline_figure(result: ScenarioResult, shown: PolicyResult) -> Figure:
    """Draw the streams of one policy."""
    trace = shown.trace
    figure = new_figure(timeline_title(result, shown), f"{place(result, shown)}{_subtitle(shown)}")
    whole, part = figure.subplots(2, 1, height_ratios=(2, 3))
    left = 0.18 if trace.spans_on(Stream.COMMUNICATION) else 0.135
    figure.subplots_adjust(left=left, right=0.97, top=0.79, bottom=0.2, hspace=0.3)
    iteration, window = Window(0.0, trace.iteration_s), magnified_window(trace)
    _draw_streams(whole, trace, iteration, edge=0.0)
    whole.xaxis.tick_top()
    whole.xaxis.set_label_position("top")
    _draw_streams(part, trace, window, edge=1.0)
    if _waits(trace):
        part.set_xlabel(f"{part.get_xlabel()}, around the longest wait for a copy")
    _write_names(part, trace, window)
    connect(figure, whole, part, window, iteration.times)
    write_legend(figure, _legend(trace, (iteration, window)))
    return figure


def magnified_window(trace: IterationTrace) -> Window:
    """Return the interval of the kernels around the longest wait for a copy.

    Of equally long ones the first counts. Without such a wait it is the turn from forward to backward; in inference,
    the first layers.
    """
    kernels = trace.spans_on(Stream.COMPUTE)
    if waits := _waits(trace):
        longest = max(waits, key=lambda stall: stall.end_s - stall.start_s)
        center = next(number for number, span in enumerate(kernels) if span.operation == longest.blocked)
    else:
        center = next((number for number, span in enumerate(kernels) if _is_backward(trace, span)), _KERNELS_AROUND)
    first, last = max(center - _KERNELS_AROUND, 0), min(center + _KERNELS_AROUND, len(kernels)) - 1
    return Window(kernels[first].start_s, kernels[last].end_s)


def _waits(trace: IterationTrace) -> list[Stall]:
    return [stall for stall in trace.stalls if stall.waited_for is not None]


def timeline_title(result: ScenarioResult, shown: PolicyResult) -> str:
    """Return what the picture says."""
    stalled = percent(shown.metrics.stall_s / shown.metrics.iteration_s)
    return f"{shown.policy}: the compute stream of {workload_text(result)} stands still {stalled} of the time"


def _subtitle(shown: PolicyResult) -> str:
    causes = ", ".join(f"{cause.value} {format_seconds(seconds)}" for cause, seconds in shown.metrics.stall_by_cause)
    unfit = "" if shown.fits else ", replayed without a capacity because it does not fit"
    return f"one iteration of {format_seconds(shown.metrics.iteration_s)}{unfit}; {causes or 'no stalls'}"


def _is_backward(trace: IterationTrace, span: Span) -> bool:
    kernel = trace.plan.operations[span.operation]
    return isinstance(kernel, Compute) and kernel.phase.is_backward


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


def _draw_streams(axes: Axes, trace: IterationTrace, window: Window, *, edge: float) -> None:
    bars: defaultdict[tuple[float, str], list[tuple[float, float]]] = defaultdict(list)
    for span in filter(window.shows, trace.spans):
        bars[_STREAM_ROWS[span.stream], look(trace, span)[0]].append(window.bar(span))
    for stall in filter(window.shows, trace.stalls):
        bars[_STALL_ROW, STALL_COLORS[stall.cause]].append(window.bar(stall))
    for (row, color), intervals in bars.items():
        # One collection per colour, for thousands of separate patches would take seconds to draw.
        place = row - _HEIGHT / 2, _HEIGHT
        axes.broken_barh(intervals, place, facecolors=color, edgecolors="white", linewidth=edge, zorder=2)
    alone = not trace.spans_on(Stream.COMMUNICATION)
    rows = {stream: row for stream, row in _STREAM_ROWS.items() if not (alone and stream is Stream.COMMUNICATION)}
    axes.set_xlim(0, (window.end_s - window.start_s) / window.times.factor)
    axes.set_ylim(min(rows.values()) - 0.6, max(rows.values()) + 0.6)
    axes.set_yticks((*rows.values(), _STALL_ROW), (*(f"{stream.value} stream" for stream in rows), "stalls"))
    axes.set_xlabel(f"time{window.since}, {window.times.unit}")
    keep_left_spine_only(axes)


def _write_names(axes: Axes, trace: IterationTrace, window: Window) -> None:
    """Write on each span that is wide enough which layer or buffer it is, on each stall how long it is."""
    for span in filter(window.shows, trace.spans):
        color, _, name = look(trace, span)
        _write_on(axes, window, span, _STREAM_ROWS[span.stream], name, color)
    stalls = list(filter(window.shows, trace.stalls))
    longest = max(stalls, key=lambda stall: stall.end_s - stall.start_s, default=None)
    for stall in stalls:
        length = format_seconds(stall.end_s - stall.start_s)
        if not _write_on(axes, window, stall, _STALL_ROW, length, STALL_COLORS[stall.cause]) and stall is longest:
            axes.annotate(
                length,
                (sum(window.bar(stall)), _STALL_ROW),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontweight="bold",
            )


def _write_on(axes: Axes, window: Window, thing: Span | Stall, row: float, text: str, color: str) -> bool:
    """Write on a bar if it is wide enough, and return whether it is."""
    start, length = window.bar(thing)
    fits = length * window.times.factor >= _FRACTION_PER_CHARACTER * len(text) * (window.end_s - window.start_s)
    if fits:
        ink = INK if color in LIGHT_COLORS else "white"
        axes.text(start + length / 2, row, text, ha="center", va="center", fontsize=13, color=ink, zorder=4)
    return fits


def connect(figure: Figure, whole: Axes, part: Axes, window: Window, times: Scale) -> None:
    """Show in the upper half which interval the lower half magnifies."""
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


def _legend(trace: IterationTrace, windows: tuple[Window, ...]) -> list[Patch]:
    """Return a patch for each colour that is seen; a stall has the colour of the copy that it waits for."""
    names: dict[str, str] = {}
    for stream in Stream:
        for span in trace.spans_on(stream):
            color, meaning, _ = look(trace, span)
            names.setdefault(color, meaning if stream is Stream.COMPUTE else f"{meaning} (and its stalls)")
    for stall in trace.stalls:
        if any(window.shows(stall) and window.shown_fraction(stall) >= SEEN for window in windows):
            names.setdefault(STALL_COLORS[stall.cause], f"stall: {stall.cause.value}")
    return [Patch(facecolor=color, label=name) for color, name in names.items()]


def write_legend(figure: Figure, handles: list[Patch]) -> None:
    """Write a legend below in as few rows as the slide is wide enough for, two at least."""
    FigureCanvasAgg(figure)  # without a canvas nothing has a width
    columns = -(-len(handles) // 2)
    while True:
        legend = figure.legend(
            handles=handles, loc="lower center", ncols=columns, frameon=False, fontsize=14, bbox_to_anchor=(0.5, 0.0)
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()
        columns -= 1
