"""Measured and simulated trace of one plan: their timelines, stream by stream, and their memory."""

from itertools import accumulate
from typing import Any, Final

from matplotlib.figure import Figure

from vdnnsim.plans.operations import Stream
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.report.palette import INK
from vdnnsim.report.plots.iteration.timeline import (
    Window,
    color_patches,
    draw_halves,
    magnified_window,
    trace_bars,
    write_on,
)
from vdnnsim.report.plots.style import as_png, name_band, new_figure, ruled, write_legend
from vdnnsim.report.scale import Scale, byte_scale, time_scale

_SIDES = ("measured", "simulated")
_ROWS: Final[dict[Stream | None, tuple[float, float]]] = {
    Stream.COMPUTE: (5.2, 4.4),
    None: (3.1, 2.3),
    Stream.MEMORY: (1.0, 0.2),
}
"""Rows of each stream, and of stalls under None: measured, and simulated below it."""
_NAMES = {Stream.COMPUTE: "compute stream", None: "stalls", Stream.MEMORY: "memory stream"}
_HEIGHT = 0.74
_POINTS = 12
_BEGINNING = 0.01
"""A window that starts within this share of the iteration is extended to its start."""
_MEASURED, _SIMULATED = "#56b4e9", INK


def timelines_figure(title: str, subtitle: str, measured: IterationTrace, simulated: IterationTrace) -> Figure:
    traces = measured, simulated
    figure = new_figure(title, subtitle)
    figure.subplots_adjust(left=0.205, right=0.975, top=0.8, bottom=0.19, hspace=0.28)
    iteration, window = Window(0.0, max(trace.iteration_s for trace in traces)), _shared_window(traces)
    sides = [trace_bars(trace, {key: rows[side] for key, rows in _ROWS.items()}) for side, trace in enumerate(traces)]
    bars = [bar for side in sides for bar in side]
    halves = draw_halves(figure, bars, iteration, window, heights=(1, 1), height=_HEIGHT)
    for axes in halves:
        axes.set_ylim(min(_ROWS[Stream.MEMORY]) - 0.5, max(_ROWS[Stream.COMPUTE]) + 0.5)
        axes.set_yticks([row for rows in _ROWS.values() for row in rows], _SIDES * len(_ROWS), fontsize=13)
        for key, rows in _ROWS.items():
            name_band(axes, _NAMES[key], sum(rows) / 2, 14)
    for bar in filter(window.shows, bars):
        if bar.row not in _ROWS[None]:
            write_on(halves[1], window, bar, _POINTS)
    write_legend(figure, color_patches(traces, (iteration,)), fontsize=14, rows=2)
    return figure


draw_timelines = as_png(timelines_figure)


def _shared_window(traces: tuple[IterationTrace, IterationTrace]) -> Window:
    """Return the interval that has the kernels of the simulated window on both sides."""
    measured, simulated = traces
    window = magnified_window(simulated)
    inside = {span.operation for span in simulated.spans_on(Stream.COMPUTE) if window.shows(span)}
    same = [span for span in measured.spans if span.operation in inside]
    start_s = min(window.start_s, *(span.start_s for span in same))
    begins = start_s < _BEGINNING * simulated.iteration_s
    return Window(0.0 if begins else start_s, max(window.end_s, *(span.end_s for span in same)))


def memories_figure(title: str, subtitle: str, measured: IterationTrace, simulated: IterationTrace) -> Figure:
    figure = new_figure(title, subtitle)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.08, right=0.97, top=0.84, bottom=0.19)
    longest_s = max(measured.iteration_s, simulated.iteration_s)
    peaks = [max(_levels(trace)) for trace in (measured, simulated)]
    times, memory = time_scale((longest_s,)), byte_scale(peaks)
    labels = [f"{side}, maximum {memory.text(peak)}" for side, peak in zip(_SIDES, peaks, strict=True)]
    look: Any = {"step": "post", "color": _MEASURED, "alpha": 0.55, "linewidth": 0, "zorder": 2}
    area = axes.fill_between(*_steps(measured, times, memory), label=labels[0], **look)
    look = {"where": "post", "color": _SIMULATED, "linewidth": 2, "zorder": 3}
    (line,) = axes.step(*_steps(simulated, times, memory), label=labels[1], **look)
    for trace, color in ((measured, _MEASURED), (simulated, _SIMULATED)):
        axes.axvline(trace.iteration_s / times.factor, color=color, linewidth=1.5, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlim(0, 1.02 * longest_s / times.factor)
    axes.set_ylim(0, 1.08 * max(peaks) / memory.factor)
    axes.set_xlabel(f"time, {times.unit}")
    axes.set_ylabel(f"device memory in use, {memory.unit}")
    ruled(axes, "y")
    write_legend(figure, [area, line], bbox_to_anchor=(0.5, 0.01))
    return figure


draw_memories = as_png(memories_figure)


def _levels(trace: IterationTrace) -> list[int]:
    return list(accumulate(change.delta_bytes for change in trace.memory))


def _steps(trace: IterationTrace, times: Scale, memory: Scale) -> tuple[list[float], list[float]]:
    across = [change.time_s / times.factor for change in trace.memory]
    levels = [nbytes / memory.factor for nbytes in _levels(trace)]
    # The last level holds to the end of the iteration.
    return [*across, trace.iteration_s / times.factor], [*levels, levels[-1]]
