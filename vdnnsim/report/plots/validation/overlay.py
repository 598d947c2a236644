"""Two traces of one plan over each other, measured and simulated: their timelines, and their memory.

Of the timelines each stream is measured, and right below it simulated, with the stalls of both between them. The upper
half is the whole iteration, the lower half magnifies the surroundings of the longest wait for a copy.
"""

from collections.abc import Iterator
from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vdnnsim.plans.operations import Stream
from vdnnsim.report.plots.iteration.spans import (
    Bar,
    Window,
    color_patches,
    connect,
    draw_bars,
    magnified_window,
    span_bar,
    stall_bar,
    write_on,
)
from vdnnsim.report.plots.style import INK, as_png, name_band, new_figure, ruled, write_legend
from vdnnsim.report.scale import Scale, byte_scale, time_scale
from vdnnsim.trace import IterationTrace

_SIDES = ("measured", "simulated")
_ROWS = {Stream.COMPUTE: (5.2, 4.4), None: (3.1, 2.3), Stream.MEMORY: (1.0, 0.2)}
"""Where each stream lies, and the stalls, which are of neither: measured, then simulated right below it."""

_NAMES = {Stream.COMPUTE: "compute stream", None: "stalls", Stream.MEMORY: "memory stream"}
_HEIGHT = 0.74
_POINTS = 12
_BEGINNING = 0.01
"""A window that starts within this share of the iteration starts with it."""


_MEASURED, _SIMULATED = "#56b4e9", INK


def timelines_figure(title: str, subtitle: str, measured: IterationTrace, simulated: IterationTrace) -> Figure:
    """Draw two traces of one plan."""
    traces = measured, simulated
    figure = new_figure(title, subtitle)
    whole, part = figure.subplots(2, 1, height_ratios=(1, 1))
    figure.subplots_adjust(left=0.205, right=0.975, top=0.8, bottom=0.19, hspace=0.28)
    iteration, window = Window(0.0, max(trace.iteration_s for trace in traces)), _shared_window(traces)
    _draw(whole, traces, iteration, edge=0.0)
    _draw(part, traces, window, edge=1.0)
    _write_names(part, traces, window)
    connect(figure, whole, part, window, iteration.times)
    write_legend(figure, color_patches(traces, (iteration,)))
    return figure


draw_timelines = as_png(timelines_figure)


def _shared_window(traces: tuple[IterationTrace, IterationTrace]) -> Window:
    """Return the interval that holds on both sides what is magnified of the simulated one."""
    measured, simulated = traces
    window = magnified_window(simulated)
    inside = {span.operation for span in simulated.spans_on(Stream.COMPUTE) if window.shows(span)}
    same = [span for span in measured.spans if span.operation in inside]
    start_s = min(window.start_s, *(span.start_s for span in same))
    begins = start_s < _BEGINNING * simulated.iteration_s
    return Window(0.0 if begins else start_s, max(window.end_s, *(span.end_s for span in same)))


def _bars(traces: tuple[IterationTrace, IterationTrace]) -> Iterator[Bar]:
    for side, trace in enumerate(traces):
        yield from (span_bar(trace, span, _ROWS[span.stream][side]) for span in trace.spans)
        yield from (stall_bar(stall, _ROWS[None][side]) for stall in trace.stalls)


def _draw(axes: Axes, traces: tuple[IterationTrace, IterationTrace], window: Window, *, edge: float) -> None:
    draw_bars(axes, _bars(traces), window, height=_HEIGHT, edge=edge)
    axes.set_ylim(min(_ROWS[Stream.MEMORY]) - 0.5, max(_ROWS[Stream.COMPUTE]) + 0.5)
    axes.set_yticks([row for rows in _ROWS.values() for row in rows], _SIDES * len(_ROWS), fontsize=13)
    for key, rows in _ROWS.items():
        name_band(axes, _NAMES[key], sum(rows) / 2, 14)


def _write_names(axes: Axes, traces: tuple[IterationTrace, IterationTrace], window: Window) -> None:
    """Write on each span that is wide enough which layer or buffer it is."""
    for bar in filter(window.shows, _bars(traces)):
        if bar.row not in _ROWS[None]:
            write_on(axes, window, bar, _POINTS)


def memories_figure(title: str, subtitle: str, measured: IterationTrace, simulated: IterationTrace) -> Figure:
    """Draw two traces of one plan."""
    figure = new_figure(title, subtitle)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.08, right=0.97, top=0.84, bottom=0.19)
    longest_s = max(measured.iteration_s, simulated.iteration_s)
    peaks = [max(_levels(trace)) for trace in (measured, simulated)]
    times, memory = time_scale((longest_s,)), byte_scale(peaks)
    moments, levels = _steps(measured, times, memory)
    axes.fill_between(
        moments,
        levels,
        step="post",
        color=_MEASURED,
        alpha=0.55,
        linewidth=0,
        zorder=2,
        label=_legend_name("measured", peaks[0], memory),
    )
    axes.step(
        *_steps(simulated, times, memory),
        where="post",
        color=_SIMULATED,
        linewidth=2,
        zorder=3,
        label=_legend_name("simulated", peaks[1], memory),
    )
    _mark_ends(axes, (measured, simulated), times)
    axes.set_xlim(0, 1.02 * longest_s / times.factor)
    axes.set_ylim(0, 1.08 * max(peaks) / memory.factor)
    axes.set_xlabel(f"time, {times.unit}")
    axes.set_ylabel(f"device memory in use, {memory.unit}")
    ruled(axes, "y")
    figure.legend(loc="lower center", ncols=2, frameon=False, bbox_to_anchor=(0.5, 0.01))
    return figure


draw_memories = as_png(memories_figure)


def _levels(trace: IterationTrace) -> list[int]:
    """Return the bytes in use after each change."""
    return list(accumulate(change.delta_bytes for change in trace.memory))


def _steps(trace: IterationTrace, times: Scale, memory: Scale) -> tuple[list[float], list[float]]:
    moments = [change.time_s / times.factor for change in trace.memory]
    levels = [nbytes / memory.factor for nbytes in _levels(trace)]
    # The last level holds to the end of the iteration.
    return [*moments, trace.iteration_s / times.factor], [*levels, levels[-1]]


def _legend_name(side: str, peak: int, memory: Scale) -> str:
    return f"{side}, maximum {memory.text(peak)}"


def _mark_ends(axes: Axes, traces: tuple[IterationTrace, IterationTrace], times: Scale) -> None:
    """Draw where each iteration ends."""
    for trace, color in zip(traces, (_MEASURED, _SIMULATED), strict=True):
        axes.axvline(trace.iteration_s / times.factor, color=color, linewidth=1.5, linestyle=(0, (4, 3)), zorder=1)
