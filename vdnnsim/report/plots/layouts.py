"""Pictures of layouts: what a rank spends its step on, what its GPU holds, and throughput by the number of GPUs."""

from collections.abc import Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vdnnsim.analysis.layouts import LayoutRanking, Ranked, gpu_rates, rate_unit
from vdnnsim.analysis.rank_times import RankTimes
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.trace import StallCause
from vdnnsim.report.labels import fold_label
from vdnnsim.report.palette import ALARM, GRID, INK, KIND_COLORS, MUTED, PHASE_COLORS, SERIES_COLORS, STALL_COLORS
from vdnnsim.report.plots.style import (
    as_png,
    keep_left_spine_only,
    mark_capacity,
    new_figure,
    plain_ticks,
    ruled,
    write,
    write_legend,
)
from vdnnsim.report.scale import Scale, byte_scale, percent, rate_cells, time_scale
from vdnnsim.units import format_bytes

_MOST_ROWS: Final = 12
_CURVE: Final[Any] = {"linewidth": 4, "marker": "o", "markersize": 10, "zorder": 3}
_STEEP: Final = 0.9
"""Of the throughput before: less is drawn as a steep curve."""
_WHITE: Final = {"facecolor": "white", "edgecolor": "none", "pad": 1}
_NEAR: Final = 4
"""A capacity beyond so many times the longest bar is left out."""
_LABEL_WIDTH: Final = 24
"""Characters per line of a label."""
_LEAST_SEEN: Final = 1 / 500
"""Of the longest bar: what is narrower in all of them is not in a legend."""
_PARTS: Final = (
    ("kernels", PHASE_COLORS[Phase.FORWARD]),
    ("waits for collectives", STALL_COLORS[StallCause.COMMUNICATION]),
    ("for copies or the update on the host", STALL_COLORS[StallCause.PREFETCH]),
    ("for other stages", STALL_COLORS[StallCause.PIPELINE]),
    ("for the host to issue", STALL_COLORS[StallCause.HOST]),
)


def layouts_figure(ranking: LayoutRanking, subtitle: str) -> Figure:
    """Draw a bar for each layout that fits, the fastest on top."""
    rows = ranking.ranked[:_MOST_ROWS]
    figure = new_figure(_title(ranking), f"{subtitle}; a bar is one step of one rank")
    axes = figure.add_axes((0.23, 0.15, 0.4, 0.7))
    scale = time_scale([each.times.step_s for each in rows])
    parts = [_parts_s(each.times) for each in rows]
    shown = [(*part, values) for part, values in zip(_PARTS, zip(*parts, strict=True), strict=False) if any(values)]
    _draw_bars(axes, rows, shown, scale)
    for row, (each, rate) in enumerate(zip(rows, rate_cells(ranking.rates), strict=False)):
        used = "" if each.flop_ratio is None else f", MFU {percent(each.flop_ratio, 0)}"
        text = f"{rate} {ranking.unit}{used}; {format_bytes(each.held_bytes)} of {format_bytes(ranking.memory_bytes)}"
        write(axes, text, (1.02, row), (0, 0), axes.get_yaxis_transform(), va="center", fontsize=13, color=INK)
    axes.set_xlabel(f"time of a step, {scale.unit}")
    write_legend(figure, _seen(shown))
    return figure


def _parts_s(times: RankTimes) -> tuple[float, ...]:
    return times.kernels_s, times.exposed_s, times.offload_s, times.bubble_s, times.other_s


def memory_figure(ranking: LayoutRanking, subtitle: str) -> Figure:
    """Draw what a GPU holds at its peak in each layout that fits, as a bar of kinds, and its capacity."""
    rows = sorted(ranking.ranked, key=lambda each: each.held_bytes)[:_MOST_ROWS]
    about = f"{subtitle}; the rank that holds most, at its peak"
    figure = new_figure(_memory_title(ranking, rows), about)
    axes = figure.add_axes((0.23, 0.2, 0.68, 0.64))
    scale = byte_scale([ranking.memory_bytes])
    found = [dict(each.peak_by_kind) for each in rows]
    parts = [(kind.words, color, [each.get(kind, 0) for each in found]) for kind, color in KIND_COLORS.items()]
    parts.append(("gaps of the allocator", GRID, [each.reserved_bytes - each.asked_bytes for each in rows]))
    parts.append(("CUDA and NCCL", SERIES_COLORS[1], [each.held_bytes - each.reserved_bytes for each in rows]))
    shown = [(name, color, values) for name, color, values in parts if any(values)]
    ends = _draw_bars(axes, rows, shown, scale)
    for row, (each, end) in enumerate(zip(rows, ends, strict=True)):
        write(axes, scale.number(each.held_bytes), (end, row), (8, 0), va="center", fontsize=13, color=INK)
    capacity, longest = ranking.memory_bytes / scale.factor, max(ends)
    if capacity > _NEAR * longest:
        text = f"capacity {format_bytes(ranking.memory_bytes)} \N{RIGHTWARDS ARROW}"
        write(axes, text, (1.0, 1.0), (0, 6), "axes fraction", ha="right", color=ALARM, fontweight="bold")
        axes.set_xlim(0, 1.25 * longest)
    else:
        axes.set_xlim(0, 1.06 * capacity)
        mark_capacity(axes, capacity, ranking.memory_bytes, side="right")
    axes.set_xlabel(f"memory of a GPU, {scale.unit}")
    write_legend(figure, _seen(shown), rows=2)
    return figure


def _seen(parts: Sequence[tuple[str, str, Sequence[float]]]) -> list[Patch]:
    """Return the entries of a legend: of parts that are wide enough in a bar to be seen."""
    bars = zip(*(values for _, _, values in parts), strict=True)
    longest = max(map(sum, bars), default=0.0)
    return [Patch(color=color, label=name) for name, color, values in parts if max(values) > longest * _LEAST_SEEN]


def _draw_bars(
    axes: Axes, rows: Sequence[Ranked], parts: Sequence[tuple[str, str, Sequence[float]]], scale: Scale
) -> list[float]:
    """Draw a bar for each layout, of parts with a name, a colour and a value for each; return where the bars end."""
    ends = [0.0] * len(rows)
    for _, color, values in parts:
        widths = [each / scale.factor for each in values]
        axes.barh(range(len(rows)), widths, left=ends, height=0.62, color=color, zorder=2)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    axes.set_yticks(range(len(rows)), [fold_label(each.setup.label, _LABEL_WIDTH) for each in rows])
    axes.set_ylim(max(len(rows), 4) - 0.4, -0.6)
    ruled(axes, "x")
    keep_left_spine_only(axes)
    return ends


def _memory_title(ranking: LayoutRanking, rows: Sequence[Ranked]) -> str:
    least, most = rows[0], format_bytes(ranking.memory_bytes)
    return f"{least.setup.label} holds {'least: ' * (len(rows) > 1)}{format_bytes(least.held_bytes)} of {most}"


def _title(ranking: LayoutRanking) -> str:
    first, where = ranking.ranked[0].setup.label, f"{ranking.gpus} GPUs of {ranking.machine}"
    return f"{first} is the fastest layout on {where}" if len(ranking.ranked) > 1 else f"{first} fits on {where}"


def scaling_figure(rankings: Sequence[LayoutRanking], title: str, subtitle: str) -> Figure:
    """Draw the throughput of a GPU above, with the layout of each number of GPUs, and its memory below."""
    fitting = [each for each in rankings if each.ranked]
    figure = new_figure(title, f"{subtitle}; the fastest layout on each number of GPUs")
    rates, memory = figure.add_axes((0.1, 0.47, 0.87, 0.38)), figure.add_axes((0.1, 0.1, 0.87, 0.28))
    _draw_rates(rates, rankings)
    _draw_memory(memory, fitting)
    for axes in (rates, memory):
        axes.set_xscale("log", base=2)
        axes.set_xlim(min(each.gpus for each in rankings) / 1.4, rankings[-1].gpus * 1.4)
        plain_ticks(axes.xaxis, [each.gpus for each in rankings])
        ruled(axes, "y")
    rates.set_xticklabels([])
    memory.set_xlabel("GPUs")
    return figure


def _draw_rates(axes: Axes, rankings: Sequence[LayoutRanking]) -> None:
    found = [(each, rate) for each, rate in zip(rankings, gpu_rates(rankings), strict=True) if rate is not None]
    per_gpu = [rate for _, rate in found]
    axes.plot([each.gpus for each, _ in found], per_gpu, color=SERIES_COLORS[0], **_CURVE)
    axes.axhline(per_gpu[0], color=MUTED, linewidth=1.6, linestyle=(0, (3, 2)), zorder=1)
    axes.set_ylim(0, 1.35 * max(per_gpu))
    earlier = (per_gpu[0], *per_gpu)
    for (each, rate), text, before in zip(found, rate_cells(per_gpu), earlier, strict=False):
        label = f"{each.ranked[0].setup.layout or 'one GPU'}\n{text}, {percent(rate / per_gpu[0], 0)}"
        # The dashed line may pass behind it, and a steep curve to its left.
        look: dict[str, Any] = {
            "ha": "left" if rate < _STEEP * before else "center",
            "va": "bottom",
            "fontsize": 12,
            "color": INK,
            "bbox": _WHITE,
        }
        write(axes, label, (each.gpus, rate), (0, 14), **look)
    for each in rankings:
        if not each.ranked:
            write(axes, "does not fit", (each.gpus, 0), (0, 10), ha="center", va="bottom", fontsize=12, color=MUTED)
    axes.set_ylabel(rate_unit(rankings))


def _draw_memory(axes: Axes, fitting: Sequence[LayoutRanking]) -> None:
    held, capacity = [each.ranked[0].held_bytes for each in fitting], fitting[0].memory_bytes
    scale = byte_scale([*held, capacity])
    heights = [each / scale.factor for each in held]
    axes.plot([each.gpus for each in fitting], heights, color=SERIES_COLORS[2], **_CURVE)
    for each, nbytes, height in zip(fitting, held, heights, strict=True):
        checkpointing = each.ranked[0].setup.checkpointing
        text = scale.number(nbytes) + (f"\n{checkpointing} checkpoints" if checkpointing != "none" else "")
        # Where there is no capacity to be read over.
        shift, side = (-10, "top") if 2 * nbytes > capacity else (10, "bottom")
        write(axes, text, (each.gpus, height), (0, shift), ha="center", va=side, fontsize=12, color=INK)
    axes.set_ylim(0, 1.25 * capacity / scale.factor)
    axes.axhline(capacity / scale.factor, color=ALARM, linewidth=2.5, zorder=1)
    look, right = {"color": ALARM, "fontweight": "bold", "ha": "right"}, ("axes fraction", "data")
    write(axes, f"capacity {format_bytes(capacity)}", (1.0, capacity / scale.factor), (0, 6), right, **look)
    axes.set_ylabel(f"memory of a GPU, {scale.unit}")


draw_layouts = as_png(layouts_figure)
draw_memory = as_png(memory_figure)
draw_scaling = as_png(scaling_figure)
