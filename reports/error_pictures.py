"""Errors of many cards as slides: measured against simulated for each card, and shares of rows by error."""

from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator, PercentFormatter

from reports.charts import Cloud, Clouds, ErrorShares
from vdnnsim.report.palette import ALARM, INK
from vdnnsim.report.plots.series import look
from vdnnsim.report.plots.style import ABOVE, as_png, new_figure, ruled, write, write_legend
from vdnnsim.report.plots.validation import draw_pairs, kind_handles, scale_durations

_IN_A_ROW = 4
"""Cards side by side."""
_FURTHEST = 1.0
"""Larger errors are drawn at the end of the axis."""


def clouds_figure(slide: Clouds) -> Figure:
    """Draw a small parity plot for each card, all on the same axes; there must be at least one pair."""
    figure = new_figure(slide.title, slide.subtitle)
    rows, columns = ceil(len(slide.clouds) / _IN_A_ROW), min(len(slide.clouds), _IN_A_ROW)
    every = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat
    figure.subplots_adjust(left=0.075, right=0.98, top=0.82, bottom=0.155, wspace=0.06, hspace=0.24)
    seconds = [value for cloud in slide.clouds for pair in cloud.pairs for value in pair[1:]]
    for axes, cloud in zip(every, slide.clouds, strict=False):
        _draw_cloud(axes, cloud, min(seconds) / 1.5, max(seconds) * 1.5)
    for axes in figure.axes[len(slide.clouds) :]:
        axes.set_visible(False)
    figure.supxlabel("measured", y=0.075, fontsize=16, color=INK)
    figure.supylabel("simulated", x=0.012, fontsize=16, color=INK)
    write_legend(figure, kind_handles(slide.kinds))
    return figure


draw_clouds = as_png(clouds_figure)


def _draw_cloud(axes: Axes, cloud: Cloud, low: float, high: float) -> None:
    draw_pairs(axes, cloud.pairs, low, high, markeredgewidth=0.6, ms=7)
    scale_durations(axes, low, high)
    axes.set_title(cloud.name, fontsize=15, fontweight="bold", loc="left", pad=7)
    axes.text(0.04, 0.95, cloud.found, transform=axes.transAxes, va="top", fontsize=13, color=INK)


def error_shares_figure(slide: ErrorShares) -> Figure:
    """Draw the slide; each estimator must have one error at least."""
    figure = new_figure(slide.title, slide.subtitle)
    axes = figure.add_axes((0.075, 0.17, 0.9, 0.67))
    everything = [error for _, errors in slide.errors for error in errors]
    ends = max(min(everything) - 0.05, -_FURTHEST), min(max(everything) + 0.05, _FURTHEST)
    axes.axvspan(ends[0], slide.limit, color="#fbeceb", zorder=0)
    axes.axvline(slide.limit, color=ALARM, linewidth=2, zorder=1)
    alarm = {"ha": "right", "va": "top", "color": ALARM, "fontweight": "bold"}
    write(axes, slide.limit_name, (slide.limit, 0.985), (-8, 0), ABOVE, **alarm)
    for number, (name, errors) in enumerate(slide.errors):
        across, shares = [ends[0], *sorted(errors), ends[1]], np.arange(len(errors) + 1) / len(errors)
        axes.step(across, [*shares, 1.0], where="post", color=look(number)[0], linewidth=3, label=name)
    axes.xaxis.set_major_locator(MultipleLocator(0.1 if ends[1] - ends[0] < 1 else 0.2))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{100 * value:+.0f} %" if round(100 * value) else "0")
    )
    axes.yaxis.set_major_formatter(PercentFormatter(1, 0, " %"))
    axes.set(xlim=ends, ylim=(0, 1.0), xlabel="error of the estimate", ylabel="share of rows with that error or less")
    write_legend(figure, axes.get_legend_handles_labels()[0], fontsize=16, bbox_to_anchor=(0.5, 0.005))
    ruled(axes, "both")
    return figure


draw_error_shares = as_png(error_shares_figure)
