"""Picture of throughput by the number of GPUs, and of the memory of each GPU."""

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vdnnsim.analysis.layouts import LayoutRanking, gpu_rates, rate_unit
from vdnnsim.report.palette import ALARM, INK, MUTED, SERIES_COLORS
from vdnnsim.report.plots.style import as_png, new_figure, plain_ticks, ruled, write
from vdnnsim.report.scale import byte_scale, percent, rate_cells
from vdnnsim.units import format_bytes

_COLOR: Final = SERIES_COLORS[0]
_MEMORY: Final = SERIES_COLORS[2]
_RIGHT: Final = ("axes fraction", "data")


def scaling_figure(rankings: Sequence[LayoutRanking], title: str, subtitle: str) -> Figure:
    """Draw the throughput of a GPU above, with the layout of each number of GPUs, and its memory below."""
    fitting = [each for each in rankings if each.ranked]
    figure = new_figure(title, f"{subtitle}; the fastest layout on each number of GPUs")
    if not fitting:
        return figure
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
    axes.plot([each.gpus for each, _ in found], per_gpu, color=_COLOR, linewidth=4, marker="o", markersize=10, zorder=3)
    axes.axhline(per_gpu[0], color=MUTED, linewidth=1.6, linestyle=(0, (3, 2)), zorder=1)
    axes.set_ylim(0, 1.35 * max(per_gpu))
    for (each, rate), text in zip(found, rate_cells(per_gpu), strict=True):
        label = f"{each.ranked[0].setup.layout or 'one GPU'}\n{text}, {percent(rate / per_gpu[0], 0)}"
        write(axes, label, (each.gpus, rate), (0, 14), ha="center", va="bottom", fontsize=12, color=INK)
    for each in rankings:
        if not each.ranked:
            write(axes, "does not fit", (each.gpus, 0), (0, 10), ha="center", va="bottom", fontsize=12, color=MUTED)
    axes.set_ylabel(rate_unit(rankings))


def _draw_memory(axes: Axes, fitting: Sequence[LayoutRanking]) -> None:
    held, capacity = [each.ranked[0].held_bytes for each in fitting], fitting[0].memory_bytes
    scale = byte_scale([*held, capacity])
    heights = [each / scale.factor for each in held]
    axes.plot([each.gpus for each in fitting], heights, color=_MEMORY, linewidth=4, marker="o", markersize=10, zorder=3)
    for each, nbytes, height in zip(fitting, held, heights, strict=True):
        checkpointing = each.ranked[0].setup.checkpointing
        text = scale.number(nbytes) + (f"\n{checkpointing} checkpoints" if checkpointing != "none" else "")
        # Where there is no capacity to be read over.
        shift, side = (-10, "top") if 2 * nbytes > capacity else (10, "bottom")
        write(axes, text, (each.gpus, height), (0, shift), ha="center", va=side, fontsize=12, color=INK)
    axes.set_ylim(0, 1.25 * capacity / scale.factor)
    axes.axhline(capacity / scale.factor, color=ALARM, linewidth=2.5, zorder=1)
    look = {"color": ALARM, "fontweight": "bold", "ha": "right"}
    write(axes, f"capacity {format_bytes(capacity)}", (1.0, capacity / scale.factor), (0, 6), _RIGHT, **look)
    axes.set_ylabel(f"memory of a GPU, {scale.unit}")


draw_scaling = as_png(scaling_figure)
