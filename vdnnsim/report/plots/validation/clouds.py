"""Measured against simulated durations by card: a small diagonal for each, all on the same axes."""

from math import ceil

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.report.chart import Cloud, Clouds
from vdnnsim.report.plots.style import INK, MUTED, as_png, new_figure
from vdnnsim.report.plots.validation.parity import COLORS, MARKERS, draw_pairs, scale_durations

_IN_A_ROW = 4
_ROOM = 1.5
"""Between the shortest and longest duration and the ends of an axis."""


def clouds_figure(slide: Clouds) -> Figure:
    """Draw the slide; there must be at least one pair."""
    figure = new_figure(slide.title, slide.subtitle)
    rows = ceil(len(slide.clouds) / _IN_A_ROW)
    columns = min(len(slide.clouds), _IN_A_ROW)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    figure.subplots_adjust(left=0.075, right=0.98, top=0.82, bottom=0.155, wspace=0.06, hspace=0.24)
    seconds = [value for cloud in slide.clouds for pair in cloud.pairs for value in pair[1:]]
    ends = min(seconds) / _ROOM, max(seconds) * _ROOM
    all_axes = [axes for line in grid for axes in line]
    for axes, cloud in zip(all_axes, slide.clouds, strict=False):
        _draw_cloud(axes, cloud, ends)
    for axes in all_axes[len(slide.clouds) :]:
        axes.set_visible(False)
    figure.supxlabel("measured", y=0.075, fontsize=16, color=INK)
    figure.supylabel("simulated", x=0.012, fontsize=16, color=INK)
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=color, ms=10, label=kind)
        for kind, marker, color in zip(slide.kinds, MARKERS, COLORS, strict=False)
    ]
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), frameon=False, bbox_to_anchor=(0.5, 0.0))
    return figure


draw_clouds = as_png(clouds_figure)


def _draw_cloud(axes: Axes, cloud: Cloud, ends: tuple[float, float]) -> None:
    axes.plot(ends, ends, color=MUTED, linewidth=1.2, zorder=2)
    draw_pairs(axes, cloud.pairs, markeredgewidth=0.6, ms=7)
    scale_durations(axes, *ends)
    axes.set_title(cloud.name, fontsize=15, fontweight="bold", loc="left", pad=7)
    axes.text(0.04, 0.95, cloud.found, transform=axes.transAxes, va="top", fontsize=13, color=INK)
