"""Timelines: spans and stalls as bars, the whole iteration above, a magnified window below."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Patch

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plans.operations import AllReduce, Communicate, Compute, Offload, Prefetch, Stream
from vdnnsim.plans.trace import IterationTrace, Span, Stall, StallCause
from vdnnsim.report.caveats import peaks_note
from vdnnsim.report.findings import place, workload_text
from vdnnsim.report.palette import INK, MUTED, STALL_COLORS, STREAM_COLORS, kind_of, written_on
from vdnnsim.report.plots.iteration.narrow_bars import PIXEL, visible
from vdnnsim.report.plots.style import keep_left_spine_only, new_figure, write, write_legend
from vdnnsim.report.scale import Scale, percent, time_scale
from vdnnsim.units import format_seconds

_KERNELS_AROUND = 5
_LEAST_WINDOW: Final = 0.1
"""Share of an iteration."""
HATCH: Final = "///"
_SEEN: Final = PIXEL / 2
"""Share of an axis that a visible bar needs."""
_EDGED: Final = 4
"""Pixels of a bar with white edges."""
_FRACTION_PER_CHARACTER: Final = {13: 0.0088, 12: 0.0082}
"""Share of the width that a character takes, by size in points."""


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, legend entry and hatching of a bar."""

    color: str
    meaning: str
    hatched: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval in a row, with text where there is room."""

    row: float
    start_s: float
    end_s: float
    look: Look
    text: str


@dataclass(frozen=True, slots=True)
class Window:
    """The interval of an iteration that an axis shows."""

    start_s: float
    end_s: float

    @property
    def times(self) -> Scale:
        return time_scale((self.end_s - self.start_s,))

    @property
    def since(self) -> str:
        """Suffix of the axis label: ` since 1.2 s`; empty where it begins with the iteration."""
        return f" since {format_seconds(self.start_s)}" if self.start_s else ""

    def shows(self, thing: Bar | Span | Stall) -> bool:
        return thing.end_s > self.start_s and thing.start_s < self.end_s

    def shown_fraction(self, thing: Bar) -> float:
        """Return the share of the axis that a bar takes."""
        return self.bar(thing)[1] * self.times.factor / (self.end_s - self.start_s)

    def bar(self, thing: Bar) -> tuple[float, float]:
        """Return start and length of a bar on the axis."""
        start_s, end_s = max(thing.start_s, self.start_s), min(thing.end_s, self.end_s)
        return (start_s - self.start_s) / self.times.factor, (end_s - start_s) / self.times.factor


def magnified_window(trace: IterationTrace) -> Window:
    """Return the interval of ten kernels with the most stalls for copies; of equal ones that around the longest stall.

    Without such stalls it is around the start of backward, in inference it has the first layers, and it is a tenth
    of the iteration at least: about a block of a transformer, forward and backward.
    """
    kernels = trace.kernels

    def around(center: int) -> tuple[int, int]:
        return max(center - _KERNELS_AROUND, 0), min(center + _KERNELS_AROUND, len(kernels)) - 1

    numbers = {span.operation: number for number, (span, _) in enumerate(kernels)}
    # Collectives of the compute stream wait, too; what the first kernel waits for is in no window.
    if waits := [stall for stall in waits_for_copies(trace) if numbers.get(stall.blocked)]:
        waited_s = [0.0] * len(kernels)
        for stall in waits:
            waited_s[numbers[stall.blocked]] += stall.end_s - stall.start_s
        until_s = [0.0, *accumulate(waited_s)]

        def lost_s(center: int) -> tuple[float, float]:
            first, last = around(center)
            return until_s[last + 1] - until_s[first], waited_s[center]

        center = max((number for number, seconds in enumerate(waited_s) if seconds), key=lost_s)
    else:
        backward = (number for number, (_, kernel) in enumerate(kernels) if kernel.phase.is_backward)
        center = next(backward, _KERNELS_AROUND)
    low, high = around(center)
    while not waits and kernels[high][0].end_s - kernels[low][0].start_s < _LEAST_WINDOW * trace.iteration_s:
        low, high = max(low - 1, 0), min(high + 1, len(kernels) - 1)
        if (low, high) == (0, len(kernels) - 1):
            break
    return Window(kernels[low][0].start_s, kernels[high][0].end_s)


def waits_for_copies(trace: IterationTrace) -> list[Stall]:
    return [stall for stall in trace.stalls if stall.waited_for is not None]


def draw_halves(
    figure: Figure, bars: Sequence[Bar], iteration: Window, window: Window, *, heights: tuple[int, int], height: float
) -> tuple[Axes, Axes]:
    """Draw the whole iteration above and a magnified window below; return both axes.

    `heights` are relative heights of the halves, `height` is that of a bar in rows.
    """
    whole, part = figure.subplots(2, 1, height_ratios=heights)
    draw_bars(whole, bars, iteration, height=height, edge=0.0)
    draw_bars(part, bars, window, height=height, edge=1.0)
    whole.xaxis.tick_top()
    whole.xaxis.set_label_position("top")
    start, end = (time_s / iteration.times.factor for time_s in (window.start_s, window.end_s))
    whole.axvspan(start, end, facecolor="none", edgecolor=INK, linewidth=1.5, zorder=5)
    coords: Any = {"coordsA": whole.get_xaxis_transform(), "coordsB": part.transAxes}
    for above, below in ((start, 0.0), (end, 1.0)):
        figure.add_artist(ConnectionPatch((above, 0.0), (below, 1.0), color=MUTED, linewidth=1, **coords))
    return whole, part


def trace_bars(trace: IterationTrace, rows: Mapping[Stream | None, float]) -> list[Bar]:
    """Return the bars of all spans and, where `rows` has a row for them under None, of stalls."""
    spans = [span_bar(trace, span, rows[span.stream]) for span in trace.spans]
    return spans + [stall_bar(stall, rows[None]) for stall in trace.stalls if None in rows]


def span_bar(trace: IterationTrace, span: Span, row: float) -> Bar:
    plan = trace.plan
    operation = plan.operations[span.operation]
    if isinstance(operation, Offload | Prefetch):
        text = plan.buffers[operation.buffer].name
    elif isinstance(operation, Communicate):
        text = operation.collective.kind.value.replace("_", " ") if operation.collective else "copy"
    else:
        assert isinstance(operation, Compute | AllReduce), "only what takes time has a span"
        text = plan.layers[operation.layer]
    kind = kind_of(operation)
    return Bar(row, span.start_s, span.end_s, Look(STREAM_COLORS[kind], kind), text)


def stall_bar(stall: Stall, row: float) -> Bar:
    look = Look(STALL_COLORS[stall.cause], f"stall: {stall.cause.value}")
    return Bar(row, stall.start_s, stall.end_s, look, format_seconds(stall.end_s - stall.start_s))


def draw_bars(axes: Axes, bars: Iterable[Bar], window: Window, *, height: float, edge: float) -> None:
    intervals: defaultdict[tuple[float, Look], list[tuple[float, float]]] = defaultdict(list)
    for bar in filter(window.shows, bars):
        intervals[bar.row, bar.look].append(window.bar(bar))
    for (row, look), places in intervals.items():
        # One collection per look: thousands of separate patches take seconds to draw.
        band, hatch = (row - height / 2, height), HATCH if look.hatched else None
        style: Any = {"facecolors": look.color, "edgecolors": "white", "hatch": hatch, "zorder": 2}
        pixel = PIXEL * (window.end_s - window.start_s) / window.times.factor
        edged = [place for place in places if edge and place[1] >= _EDGED * pixel]
        axes.broken_barh(edged, band, linewidth=edge, **style)
        # Edges would cover narrow ones, and those that are moved to whole pixels vanish.
        others = visible([place for place in places if not edge or place[1] < _EDGED * pixel], pixel)
        axes.broken_barh(others, band, linewidth=0.0, snap=False, **style)
    axes.set_xlim(0, (window.end_s - window.start_s) / window.times.factor)
    axes.set_xlabel(f"time{window.since}, {window.times.unit}")
    keep_left_spine_only(axes)


def write_on(axes: Axes, window: Window, bar: Bar, points: int) -> bool:
    """Write the text of a bar on it if it is wide enough, and return whether it is."""
    fits = window.shown_fraction(bar) >= _FRACTION_PER_CHARACTER[points] * len(bar.text)
    if fits and bar.text:
        start, length = window.bar(bar)
        color = bar.look.color
        look: Any = {"ha": "center", "va": "center", "color": written_on(color), "zorder": 4}
        box = {"facecolor": color, "edgecolor": "none", "pad": 1} if bar.look.hatched else None
        axes.text(start + length / 2, bar.row, bar.text, fontsize=points, bbox=box, **look)
    return fits


def color_patches(traces: Sequence[IterationTrace], windows: Sequence[Window]) -> list[Patch]:
    """Return the entries of a legend: of what is wide enough in a window to be seen, all bars of a kind together."""
    names: dict[str, str] = {}
    for trace in traces:
        for stream in Stream:
            shown: defaultdict[Look, list[float]] = defaultdict(lambda: [0.0] * len(windows))
            for bar in (span_bar(trace, span, 0.0) for span in trace.spans_on(stream)):
                for at, window in enumerate(windows):
                    shown[bar.look][at] += window.shown_fraction(bar) if window.shows(bar) else 0.0
            for look, fractions in shown.items():
                if max(fractions) >= _SEEN:
                    means = look.meaning if stream is Stream.COMPUTE else f"{look.meaning} (and its stalls)"
                    names.setdefault(look.color, means)
        for bar in (stall_bar(stall, 0.0) for stall in trace.stalls):
            if any(window.shows(bar) and window.shown_fraction(bar) >= _SEEN for window in windows):
                names.setdefault(bar.look.color, bar.look.meaning)
    return [Patch(facecolor=color, label=name) for color, name in names.items()]


_FROM_ABOVE: Final = (Stream.COMPUTE, None, *(each for each in Stream if each is not Stream.COMPUTE))
"""Rows of the streams, and of stalls under None."""
_HEIGHT = 0.8
_LEAST_ROWS: Final = 2.2
"""Rows for which axes have room at least."""
_POINTS = 13


def timeline_subject(result: ScenarioResult) -> PolicyResult:
    """Return the subject of the other pictures or, where that copies nothing, the fastest that fits and copies."""
    shown = result.subject
    if shown.trace.spans_on(Stream.MEMORY):
        return shown
    copying = [each for each in result.slowest if each.fits and each.trace.spans_on(Stream.MEMORY)]
    return min(copying, key=lambda each: each.metrics.iteration_s, default=shown)


def timeline_figure(result: ScenarioResult, shown: PolicyResult) -> Figure:
    trace = shown.trace
    figure = new_figure(timeline_title(result, shown), f"{place(result, shown)}{_subtitle(result, shown)}")
    left = 0.18 if trace.spans_on(Stream.COMMUNICATION) else 0.135
    figure.subplots_adjust(left=left, right=0.97, top=0.79, bottom=0.2, hspace=0.3)
    iteration, window = Window(0.0, trace.iteration_s), magnified_window(trace)
    names = {stream: name for stream in _FROM_ABOVE if (name := _row_name(trace, stream))}
    rows = {stream: -float(number) for number, stream in enumerate(names)}
    bars = trace_bars(trace, rows)
    halves = draw_halves(figure, bars, iteration, window, heights=(2, 3), height=_HEIGHT)
    low, high = min(rows.values()) - 0.6, max(rows.values()) + 0.6
    margin = max(0.0, _LEAST_ROWS - (high - low)) / 2
    for axes in halves:
        axes.set_ylim(low - margin, high + margin)
        axes.set_yticks([*rows.values()], [*names.values()])
    part = halves[1]
    if waits := waits_for_copies(trace):
        longest = max(waits, key=lambda each: min(each.end_s, window.end_s) - max(each.start_s, window.start_s))
        what = "collectives" if longest.cause is StallCause.COMMUNICATION else "copies"
        part.set_xlabel(f"{part.get_xlabel()}, where {what} are waited for most")
    _write_names(part, list(filter(window.shows, bars)), window, rows.get(None))
    write_legend(figure, color_patches((trace,), (iteration, window)), fontsize=14, rows=2)
    return figure


def _row_name(trace: IterationTrace, stream: Stream | None) -> str:
    """Return the label of a stream's row; empty where nothing is seen in it."""
    if stream is None:
        stalled_s = sum(each.end_s - each.start_s for each in trace.stalls)
        return "stalls" if stalled_s >= _SEEN * trace.iteration_s else ""
    return f"{stream.value} stream" if trace.spans_on(stream) else ""


def timeline_title(result: ScenarioResult, shown: PolicyResult) -> str:
    stalled = percent(shown.metrics.stall_s / shown.metrics.iteration_s)
    return f"{shown.policy}: the compute stream of {workload_text(result)} waits {stalled} of the time"


def _subtitle(result: ScenarioResult, shown: PolicyResult) -> str:
    causes = ", ".join(f"{cause.value} {format_seconds(seconds)}" for cause, seconds in shown.metrics.stall_by_cause)
    unfit = "" if shown.fits else ", replayed without a capacity because it does not fit"
    best = result.subject
    instead = shown is not best and not best.trace.spans_on(Stream.MEMORY)
    rival = f"; {best.policy} copies nothing: {format_seconds(best.metrics.iteration_s)}" if instead else ""
    note = peaks_note(result.kernels)
    return f"one iteration of {format_seconds(shown.metrics.iteration_s)}{unfit}; {causes or 'no stalls'}{rival}{note}"


def _write_names(axes: Axes, shown: list[Bar], window: Window, stalls_row: float | None) -> None:
    stalls = [bar for bar in shown if bar.row == stalls_row]
    longest = max(stalls, key=lambda bar: bar.end_s - bar.start_s, default=None)
    for bar in shown:
        if not write_on(axes, window, bar, _POINTS) and bar is longest:
            write(axes, bar.text, (sum(window.bar(bar)), bar.row), (6, 0), va="center", fontweight="bold")
