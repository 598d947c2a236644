"""Memory over time of one plan, measured and simulated, each with its maximum."""

from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vdnnsim.report.plots.style import INK, house_style, new_figure, png, ruled
from vdnnsim.report.scale import Scale, byte_scale, time_scale
from vdnnsim.trace import IterationTrace

_MEASURED, _SIMULATED = "#56b4e9", INK


def draw_memory_overlay(title: str, subtitle: str, measured: IterationTrace, simulated: IterationTrace) -> bytes:
    """Draw two traces of one plan as PNG, in the style of the house; equal traces give equal bytes."""
    with house_style():
        return png(memory_overlay_figure(title, subtitle, measured, simulated))


def memory_overlay_figure(title: str, subtitle: str, measured: IterationTrace, simulated: IterationTrace) -> Figure:
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
        label=_name("measured", peaks[0], memory),
    )
    axes.step(
        *_steps(simulated, times, memory),
        where="post",
        color=_SIMULATED,
        linewidth=2,
        zorder=3,
        label=_name("simulated", peaks[1], memory),
    )
    _mark_ends(axes, (measured, simulated), times)
    axes.set_xlim(0, 1.02 * longest_s / times.factor)
    axes.set_ylim(0, 1.08 * max(peaks) / memory.factor)
    axes.set_xlabel(f"time, {times.unit}")
    axes.set_ylabel(f"device memory in use, {memory.unit}")
    ruled(axes, "y")
    figure.legend(loc="lower center", ncols=2, frameon=False, bbox_to_anchor=(0.5, 0.01))
    return figure


def _levels(trace: IterationTrace) -> list[int]:
    """Return the bytes in use after each change."""
    return list(accumulate(change.delta_bytes for change in trace.memory))


def _steps(trace: IterationTrace, times: Scale, memory: Scale) -> tuple[list[float], list[float]]:
    moments = [change.time_s / times.factor for change in trace.memory]
    levels = [nbytes / memory.factor for nbytes in _levels(trace)]
    # The last level holds to the end of the iteration.
    return [*moments, trace.iteration_s / times.factor], [*levels, levels[-1]]


def _name(side: str, peak: int, memory: Scale) -> str:
    return f"{side}, maximum {memory.text(peak)}"


def _mark_ends(axes: Axes, traces: tuple[IterationTrace, IterationTrace], times: Scale) -> None:
    """Draw where each iteration ends."""
    for trace, color in zip(traces, (_MEASURED, _SIMULATED), strict=True):
        axes.axvline(trace.iteration_s / times.factor, color=color, linewidth=1.5, linestyle=(0, (4, 3)), zorder=1)
