"""Memory of GPU and host over time, each with its capacity; that of the GPU stacked by kind of buffer."""

from typing import Any, Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.analysis.memory import MemoryCurve, memory_curve, offloaded_curve, peak_operation, process_bytes
from vdnnsim.analysis.metrics import RunMetrics
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.report.findings import headline, place
from vdnnsim.report.palette import ALARM, INK, KIND_COLORS, MUTED, OFFLOAD
from vdnnsim.report.plots.style import ABOVE, new_figure, ruled, write
from vdnnsim.report.scale import Scale, byte_scale, time_scale
from vdnnsim.units import format_bytes, format_seconds

_MANY_STEPS = 1000
_COLUMNS = 360
"""A curve of more steps than the first number is drawn by so many columns, each wide enough to be seen."""
_WIDEST = 32
"""Characters that fit beside the axes."""
_HEIGHTS = (3, 2)
_NEAR = 4
"""A capacity beyond so many times the peak is left out."""
_ALARMING: Final[Any] = {"color": ALARM, "fontweight": "bold"}
_NAMED = 0.1
"""Least share of an iteration for which the update is named."""


def memory_figure(result: ScenarioResult, shown: PolicyResult) -> Figure:
    """Draw the memory in use of one policy over one iteration, of the GPU and, where it offloads, of the host below."""
    trace, metrics = shown.trace, shown.metrics
    offloaded = f"{format_bytes(metrics.offloaded_bytes)} are" if metrics.offloaded_bytes else "nothing is"
    where, everything = place(result, shown), format_bytes(result.oracle.allocated_bytes)
    kept = f"; keeping everything would take {everything}" if result.captured is None else ""
    subtitle = (
        f"{where}{'memory' if where else 'Memory'} over one iteration of {format_seconds(trace.iteration_s)}; "
        f"{offloaded} offloaded{kept}"
    )
    figure = new_figure(headline(result, shown), subtitle)
    times, curve = time_scale((trace.iteration_s,)), memory_curve(trace)
    many = len(curve.times_s) > _MANY_STEPS
    curve = curve.envelope(trace.iteration_s, _COLUMNS) if many else curve
    # Of a captured rank, gradients on the host are no buffers.
    if any(offloaded_curve(trace)[1]):
        gpu, host = figure.subplots(2, 1, sharex=True, height_ratios=_HEIGHTS)
        _draw_host(host, result, curve, trace, times)
        below = host
    else:
        gpu = below = figure.subplots()
    figure.subplots_adjust(left=0.07, right=0.72, top=0.84, bottom=0.1, hspace=0.12)
    _draw_gpu(gpu, result, shown, curve, times)
    gpu.set_xlim(0, trace.iteration_s / times.factor)
    note = f" (each of {_COLUMNS} columns shows the greatest use within it)" if many else ""
    below.set_xlabel(f"time, {times.unit}{note}")
    return figure


def _draw_gpu(axes: Axes, result: ScenarioResult, shown: PolicyResult, curve: MemoryCurve, times: Scale) -> None:
    trace, metrics, capacity = shown.trace, shown.metrics, result.server.gpu.memory_bytes
    memory, top = _draw_capacity(axes, capacity, metrics.allocated_bytes)
    areas, more = _draw_areas(axes, curve, trace, times, memory), dict[str, Artist]()
    beside_bytes = process_bytes(trace, result.server.gpu) - metrics.allocated_bytes
    is_over = metrics.allocated_bytes > capacity
    if is_over:
        # Beside its line the text would cover what lies above it.
        more[f"capacity  {memory.text(capacity)}"] = Line2D([], [], color=ALARM, linewidth=2.5)
    axes.axhline(metrics.mean_allocated_bytes / memory.factor, color=INK, linestyle=(0, (2, 2)), linewidth=1.8)
    beside = f"gaps, CUDA's context  {memory.number(beside_bytes)}"
    if beside_bytes > 0 and is_over:
        # What lies there would hide it; the heading has the sum.
        more[beside] = Line2D([], [], linestyle="")
    elif beside_bytes > 0 and capacity < top:
        ends = max(0, capacity - beside_bytes) / memory.factor, capacity / memory.factor
        look: Any = {"edgecolor": MUTED if shown.fits else ALARM, "zorder": 1}
        area = axes.axhspan(*ends, facecolor="none", hatch="//", linewidth=0, **look)
        more[beside] = area
    _mark_turn(axes, trace, times)
    peak_s, kernel = peak_operation(trace)
    peak = peak_s / times.factor, 1.015 * metrics.allocated_bytes / memory.factor
    axes.plot(*peak, "v", color=INK, ms=11, zorder=6, clip_on=False)
    _write_legend(axes, areas, metrics, kernel, memory, more)
    axes.set_ylim(0, top / memory.factor)
    axes.set_ylabel(f"GPU memory, {memory.unit}")
    ruled(axes, "y")


def _draw_host(axes: Axes, result: ScenarioResult, curve: MemoryCurve, trace: IterationTrace, times: Scale) -> None:
    times_s, offloaded = offloaded_curve(trace)
    memory, top = _draw_capacity(axes, result.server.host.memory_bytes // result.gpus, max(offloaded))
    drawn_s = np.asarray((*curve.times_s, trace.iteration_s))
    held = np.asarray((0, *offloaded), dtype=float)[np.searchsorted(times_s, drawn_s, side="right")]
    look: Any = {"step": "post", "color": OFFLOAD, "linewidth": 0, "zorder": 2}
    area = axes.fill_between(drawn_s / times.factor, held / memory.factor, **look)
    axes.set_ylim(0, top / memory.factor)
    axes.set_ylabel(f"CPU memory, {memory.unit}")
    label = f"offloaded, up to  {memory.text(max(offloaded))}"
    axes.legend([area], [label], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    ruled(axes, "y")


def _draw_areas(
    axes: Axes, curve: MemoryCurve, trace: IterationTrace, times: Scale, memory: Scale
) -> dict[BufferKind, Artist]:
    kinds = [kind for kind in KIND_COLORS if any(curve.kinds[kind])]
    # The last value holds to the end of the iteration.
    across = [time_s / times.factor for time_s in (*curve.times_s, trace.iteration_s)]
    rows = [[nbytes / memory.factor for nbytes in (*curve.kinds[kind], curve.kinds[kind][-1])] for kind in kinds]
    colors = [KIND_COLORS[kind] for kind in kinds]
    areas = axes.stackplot(across, rows, colors=colors, step="post", linewidth=0, zorder=2)
    return dict(zip(kinds, areas, strict=True))


def _draw_capacity(axes: Axes, capacity: int, most: int) -> tuple[Scale, float]:
    """Draw a capacity, or above the axes where it is far beyond the peak; return the unit and the top in bytes."""
    if capacity > _NEAR * most:
        text = f"capacity {format_bytes(capacity)} \N{UPWARDS ARROW}"
        # Below the names of phases.
        write(axes, text, (1.0, 1.0), (-4, -26), "axes fraction", ha="right", va="top", zorder=5, **_ALARMING)
        return byte_scale((most,)), 1.35 * most
    memory = byte_scale((capacity, most))
    axes.axhline(capacity / memory.factor, color=ALARM, linewidth=2.5, zorder=3)
    if most > capacity:
        return memory, 1.15 * most
    box = {"facecolor": "white", "edgecolor": "none", "pad": 2, "alpha": 0.85}
    said, right = f"capacity {format_bytes(capacity)}", ("axes fraction", "data")
    write(axes, said, (1.0, capacity / memory.factor), (-4, 7), right, ha="right", bbox=box, zorder=5, **_ALARMING)
    return memory, 1.15 * capacity


def _write_legend(
    axes: Axes,
    areas: dict[BufferKind, Artist],
    metrics: RunMetrics,
    kernel: str,
    memory: Scale,
    more: dict[str, Artist],
) -> None:
    at_peak = dict(metrics.peak_by_kind)
    entries = {f"{kind.words}  {memory.number(at_peak.get(kind, 0))}": areas[kind] for kind in reversed(areas)}
    most = memory.text(metrics.allocated_bytes)
    mean = Line2D([], [], color=INK, linestyle=(0, (2, 2)), linewidth=1.8)
    entries |= {f"mean over time  {memory.text(metrics.mean_allocated_bytes)}": mean} | more
    axes.legend(
        entries.values(),
        entries.keys(),
        title=f"\N{BLACK DOWN-POINTING TRIANGLE} maximum {most}\n{_folded(f'in {kernel}')}",
        title_fontproperties={"weight": "bold", "size": 15},
        alignment="left",
        loc="upper left",
        bbox_to_anchor=(1.0, 1.04),
        frameon=False,
        labelspacing=0.7,
    )


def _folded(text: str) -> str:
    if len(text) <= _WIDEST:
        return text
    phase, name = text.split(" of ", maxsplit=1)
    return f"{phase} of\n{name if len(name) <= _WIDEST else f'...{name[3 - _WIDEST :]}'}"


def _mark_turn(axes: Axes, trace: IterationTrace, times: Scale) -> None:
    """Mark the start of backward, and that of the update if it is long enough for its name."""
    phases = [(span.start_s, kernel.phase) for span, kernel in trace.kernels]
    turn_s = next((start_s for start_s, phase in phases if phase.is_backward), None)
    if turn_s is None:
        return
    marks: list[tuple[float, tuple[tuple[str, str, int], ...]]] = [
        (turn_s, (("forward", "right", -8), ("backward", "left", 8)))
    ]
    done_s = max(start_s for start_s, phase in phases if phase.is_backward)
    update_s = next((start_s for start_s, phase in phases if start_s > done_s and phase is Phase.UPDATE), None)
    if update_s is not None and trace.iteration_s - update_s > _NAMED * trace.iteration_s:
        marks.append((update_s, (("update", "left", 8),)))
    for start_s, words in marks:
        axes.axvline(start_s / times.factor, color=MUTED, linewidth=1.2)
        for text, side, shift in words:
            write(axes, text, (start_s / times.factor, 1.0), (shift, -4), ABOVE, ha=side, va="top", color=MUTED)
