"""Policies side by side: how fast each is, and how much memory it takes of what there is."""

import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.report.findings import caption, comparison, fastest_fitting
from vdnnsim.report.plots.style import ALARM, GRID, INK, MUTED, keep_left_spine_only, new_figure
from vdnnsim.report.scale import byte_scale, percent
from vdnnsim.units import format_bytes

_BEST, _OTHER, _UNFIT = "#0072b2", "#8fb8d4", "#ffffff"
_HEIGHT = 0.62
_LABEL_WIDTH = 17
_FEWEST_ROWS = 4
"""Room for so many, lest two bars fill the slide."""


def policies_figure(result: ScenarioResult) -> Figure:
    """Draw bars of speed against the oracular baseline, and of maximum memory against the capacity."""
    figure = new_figure(comparison(result), caption(result))
    speed, memory = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.15, right=0.9, top=0.8, bottom=0.13, wspace=0.3)
    _draw_speed(speed, result)
    _draw_memory(memory, result)
    rows = result.results
    speed.set_yticks(range(len(rows)), [textwrap.fill(each.policy, _LABEL_WIDTH) for each in rows])
    speed.set_ylim(max(len(rows), _FEWEST_ROWS) - 0.4, -0.6)
    return figure


def _draw_speed(axes: Axes, result: ScenarioResult) -> None:
    ratios = [each.performance_ratio for each in result.results]
    _bars(axes, result, [100 * ratio for ratio in ratios])
    _numbers(axes, result, [percent(ratio) for ratio in ratios])
    axes.axvline(100, color=MUTED, linestyle=(0, (4, 3)), linewidth=2, zorder=3)
    _above(axes, 100, "oracular baseline", MUTED)
    axes.set_xlim(0, 105 * max(1.0, *ratios))
    axes.set_xlabel("speed, % of the oracular baseline")


def _draw_memory(axes: Axes, result: ScenarioResult) -> None:
    rows, capacity = result.results, result.server.gpu.memory_bytes
    scale = byte_scale((capacity, *(each.metrics.max_memory_bytes for each in rows)))
    sizes = [each.metrics.max_memory_bytes / scale.factor for each in rows]
    limit, longest = capacity / scale.factor, max(capacity / scale.factor, *sizes)
    _bars(axes, result, sizes)
    _numbers(axes, result, [scale.text(each.metrics.max_memory_bytes) for each in rows])
    for position, each in enumerate(rows):
        if not each.fits:
            _write_unfit(axes, limit, position, right=limit < longest / 2)
    axes.axvline(limit, color=ALARM, linewidth=2.5, zorder=3)
    _above(axes, limit, f"capacity {format_bytes(capacity)}", ALARM)
    means = [each.metrics.mean_memory_bytes / scale.factor for each in rows]
    axes.scatter(
        means, range(len(rows)), marker="D", s=55, color=INK, edgecolor="white", zorder=4, label="mean over time"
    )
    axes.legend(loc="upper right", bbox_to_anchor=(1.31, -0.055), frameon=False, handletextpad=0.1)
    axes.set_xlim(0, 1.05 * longest)
    axes.set_xlabel(f"most GPU memory in use, {scale.unit}")


def _bars(axes: Axes, result: ScenarioResult, lengths: list[float]) -> None:
    best = fastest_fitting(result)
    for position, (each, length) in enumerate(zip(result.results, lengths, strict=True)):
        axes.barh(
            position,
            length,
            height=_HEIGHT,
            color=_UNFIT if not each.fits else _BEST if each in best else _OTHER,
            edgecolor=MUTED if not each.fits else "none",
            hatch=None if each.fits else "//",
            zorder=2,
        )
    axes.grid(axis="x", color=GRID, zorder=0)
    keep_left_spine_only(axes)
    axes.tick_params(bottom=False)


def _numbers(axes: Axes, result: ScenarioResult, texts: list[str]) -> None:
    """Write the numbers in a column beside the bars, where no line crosses them."""
    for position, (each, text) in enumerate(zip(result.results, texts, strict=True)):
        axes.annotate(
            text,
            (1.0, position),
            xycoords=("axes fraction", "data"),
            xytext=(100, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=INK if each.fits else MUTED,
            fontweight="bold" if each.fits else "normal",
            annotation_clip=False,
        )


def _write_unfit(axes: Axes, limit: float, position: int, *, right: bool) -> None:
    axes.annotate(
        "does not fit",
        (limit, position),
        xytext=(10 if right else -10, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        va="center",
        color=ALARM,
        fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 3},
        zorder=5,
    )


def _above(axes: Axes, where: float, text: str, color: str) -> None:
    axes.annotate(
        text,
        (where, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        color=color,
        fontweight="bold",
    )
