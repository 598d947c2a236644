"""How many estimates are too low, and by how much: the share of rows up to each error, a line for each estimator."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator, PercentFormatter

from vdnnsim.report.chart import ErrorShares
from vdnnsim.report.looks import ALARM
from vdnnsim.report.plots.series import look
from vdnnsim.report.plots.style import ABOVE, as_png, new_figure, ruled, write, write_legend

_FURTHEST = 1.0
"""Errors beyond are drawn at the end of the axis."""


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
