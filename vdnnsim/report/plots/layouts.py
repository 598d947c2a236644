"""Pictures of a ranking of layouts: a rank's step as a bar of what it spends time on, and what its GPU holds."""

from collections.abc import Sequence
from typing import Final

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vdnnsim.analysis.layouts import LayoutRanking, Ranked
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.trace import StallCause
from vdnnsim.report.labels import fold_label
from vdnnsim.report.palette import GRID, INK, KIND_COLORS, PHASE_COLORS, SERIES_COLORS, STALL_COLORS
from vdnnsim.report.plots.style import (
    as_png,
    keep_left_spine_only,
    mark_capacity,
    new_figure,
    ruled,
    write,
    write_legend,
)
from vdnnsim.report.scale import byte_scale, percent, rate_cells, time_scale
from vdnnsim.units import format_bytes

_MOST_ROWS: Final = 12
_LABEL_WIDTH: Final = 24
"""Characters per line of a label."""
_STAGES: Final = "waits for other stages"
_PARTS: Final = (
    ("kernels", PHASE_COLORS[Phase.FORWARD]),
    ("waits for collectives", STALL_COLORS[StallCause.COMMUNICATION]),
    (_STAGES, STALL_COLORS[StallCause.PIPELINE]),
    ("waits for the host or copies", STALL_COLORS[StallCause.HOST]),
)


def layouts_figure(ranking: LayoutRanking, subtitle: str) -> Figure:
    """Draw a bar for each layout that fits, the fastest on top."""
    rows = ranking.ranked[:_MOST_ROWS]
    figure = new_figure(_title(ranking), f"{subtitle}; a bar is one step of one rank")
    axes = figure.add_axes((0.23, 0.15, 0.4, 0.7))
    scale = time_scale([each.iteration_s for each in rows])
    lefts = [0.0] * len(rows)
    parts = [(each.kernels_s, each.exposed_s, each.bubble_s, each.other_s) for each in rows]
    shown = [
        (name, color, values)
        for (name, color), values in zip(_PARTS, zip(*parts, strict=True), strict=False)
        if name != _STAGES or any(values)
    ]
    for _, color, values in shown:
        widths = [each / scale.factor for each in values]
        axes.barh(range(len(rows)), widths, left=lefts, height=0.62, color=color, zorder=2)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    for row, (each, rate) in enumerate(zip(rows, rate_cells(ranking.rates), strict=False)):
        used = "" if each.flop_ratio is None else f", MFU {percent(each.flop_ratio, 0)}"
        text = f"{rate} {ranking.unit}{used}; {format_bytes(each.held_bytes)} of {format_bytes(ranking.memory_bytes)}"
        write(axes, text, (1.02, row), (0, 0), axes.get_yaxis_transform(), va="center", fontsize=13, color=INK)
    names = [fold_label(each.setup.label, _LABEL_WIDTH) for each in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(max(len(rows), 4) - 0.4, -0.6)
    axes.set_xlabel(f"time of a step, {scale.unit}")
    ruled(axes, "x")
    keep_left_spine_only(axes)
    write_legend(figure, [Patch(color=color, label=name) for name, color, _ in shown])
    return figure


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
    lefts = [0.0] * len(rows)
    for _, color, values in shown:
        widths = [each / scale.factor for each in values]
        axes.barh(range(len(rows)), widths, left=lefts, height=0.62, color=color, zorder=2)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    for row, (each, end) in enumerate(zip(rows, lefts, strict=True)):
        write(axes, scale.number(each.held_bytes), (end, row), (8, 0), va="center", fontsize=13, color=INK)
    axes.set_yticks(range(len(rows)), [fold_label(each.setup.label, _LABEL_WIDTH) for each in rows])
    axes.set_ylim(max(len(rows), 4) - 0.4, -0.6)
    axes.set_xlim(0, 1.06 * ranking.memory_bytes / scale.factor)
    mark_capacity(axes, ranking.memory_bytes / scale.factor, ranking.memory_bytes, side="right")
    axes.set_xlabel(f"memory of a GPU, {scale.unit}")
    ruled(axes, "x")
    keep_left_spine_only(axes)
    write_legend(figure, [Patch(color=color, label=name) for name, color, _ in shown], rows=2)
    return figure


def _memory_title(ranking: LayoutRanking, rows: Sequence[Ranked]) -> str:
    if not rows:
        return _title(ranking)
    least = rows[0]
    return f"{least.setup.label} holds least: {format_bytes(least.held_bytes)} of {format_bytes(ranking.memory_bytes)}"


def _title(ranking: LayoutRanking) -> str:
    if not ranking.ranked:
        return f"No layout fits on {ranking.gpus} GPUs of {ranking.machine}"
    return f"{ranking.ranked[0].setup.label} is the fastest layout on {ranking.gpus} GPUs of {ranking.machine}"


draw_layouts = as_png(layouts_figure)
draw_memory = as_png(memory_figure)
