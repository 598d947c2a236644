"""Measured against simulated: timelines and memory of one plan, and a parity plot of durations, with their errors."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from vdnnsim.plans.operations import Stream
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.report.palette import ALARM, GRID, INK, MUTED
from vdnnsim.report.picture import Parity
from vdnnsim.report.plots.iteration.timeline import (
    Window,
    color_patches,
    draw_halves,
    magnified_window,
    trace_bars,
    write_on,
)
from vdnnsim.report.plots.series import look
from vdnnsim.report.plots.style import (
    as_png,
    keep_left_spine_only,
    name_band,
    new_figure,
    point_handle,
    ruled,
    write_legend,
)
from vdnnsim.report.scale import Scale, byte_scale, time_scale
from vdnnsim.units import format_seconds

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


_BAND = "#dcebf5"
_MARKERS = ("o", "D")
_SPREAD = 0.5
"""Share of the height of a group over which its rows are spread."""
_WIDE = 80
"""Ratio of longest to shortest from which only powers of ten have ticks."""
_LEAST_HALF_WIDTH = 1.6
"""Least half width of the axis of errors, in tolerances."""


def parity_figure(parity: Parity) -> Figure:
    figure = new_figure(parity.title, parity.subtitle)
    diagonal, errors = figure.add_axes((0.085, 0.19, 0.37, 0.66)), figure.add_axes((0.655, 0.19, 0.32, 0.66))
    _draw_diagonal(diagonal, parity)
    _draw_errors(errors, parity)
    present = {pair.kind for pair in parity.pairs}
    handles = [handle for kind, handle in enumerate(kind_handles(parity.kinds)) if kind in present]
    write_legend(
        figure, [*handles, Patch(facecolor=_BAND, edgecolor=MUTED, label=parity.band)], bbox_to_anchor=(0.5, 0.01)
    )
    return figure


draw_parity = as_png(parity_figure)


def kind_handles(kinds: Sequence[str]) -> list[Line2D]:
    return [point_handle(kind, look(number)[0], _MARKERS[number]) for number, kind in enumerate(kinds)]


def _draw_diagonal(axes: Axes, parity: Parity) -> None:
    seconds = [value for pair in parity.pairs for value in (pair.measured_s, pair.simulated_s)]
    low, high = min(seconds) / 1.3, max(seconds) * 1.3
    below, above = ([end * (1 + sign * parity.tolerance) for end in (low, high)] for sign in (-1, 1))
    axes.fill_between((low, high), below, above, color=_BAND, zorder=1)
    draw_pairs(axes, [(pair.kind, pair.measured_s, pair.simulated_s) for pair in parity.pairs], low, high, ms=9)
    scale_durations(axes, low, high, subs=(1.0, 2.0, 5.0) if high < _WIDE * low else (1.0,))
    axes.set_aspect("equal", adjustable="box")
    axes.set_xlabel("measured iteration time")
    axes.set_ylabel("simulated iteration time")


def draw_pairs(axes: Axes, pairs: Sequence[tuple[int, float, float]], *ends: float, **drawn: Any) -> None:  # noqa: ANN401  # as matplotlib's
    axes.plot(ends, ends, color=MUTED, linewidth=1.2, zorder=2)
    for kind, marker in enumerate(_MARKERS):
        places = [pair[1:] for pair in pairs if pair[0] == kind]
        across, up = zip(*places, strict=True) if places else ((), ())
        axes.plot(across, up, marker, color=look(kind)[0], markeredgecolor="white", zorder=3, **drawn)


def scale_durations(axes: Axes, low: float, high: float, subs: tuple[float, ...] = (1.0,)) -> None:
    """Make both axes logarithmic, in seconds, with ticks at `subs` of each power of ten."""
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _short_seconds(value)))
        axis.set_minor_formatter(NullFormatter())
    ruled(axes, "both")


def _short_seconds(seconds: float) -> str:
    """Return a tick of 1, 2 or 5 times a power of ten without the zeros behind its point: `20 ms`."""
    number, unit = format_seconds(seconds).split()
    return f"{float(number):g} {unit}"


def _draw_errors(axes: Axes, parity: Parity) -> None:
    groups = list(dict.fromkeys(pair.group for pair in parity.pairs))
    widest = max(abs(pair.error) for pair in parity.pairs)
    axes.axvspan(-parity.tolerance, parity.tolerance, color=_BAND, zorder=0)
    axes.axvline(0, color=MUTED, linewidth=1.2, zorder=1)
    for place, group in enumerate(groups):
        members = [pair for pair in parity.pairs if pair.group == group]
        for number, pair in enumerate(members):
            shift = (number / max(len(members) - 1, 1) - 0.5) * _SPREAD
            rim, width = (ALARM, 2.5) if abs(pair.error) > parity.tolerance else ("white", 1.0)
            drawn: Any = {"color": look(pair.kind)[0], "markeredgecolor": rim, "markeredgewidth": width}
            axes.plot(pair.error, place + shift, marker=_MARKERS[pair.kind], ms=9, zorder=3, **drawn)
    for one, other in pairwise(range(len(groups))):
        axes.axhline((one + other) / 2, color=GRID, linewidth=1, zorder=0)
    half = max(_LEAST_HALF_WIDTH * parity.tolerance, 1.15 * widest)
    axes.set_xlim(-half, half)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_yticks(range(len(groups)), groups, fontsize=14 if len(groups) <= 12 else 11, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:+.3g} %" if value else "0"))
    axes.set_xlabel("error of the simulated time")
    keep_left_spine_only(axes)
