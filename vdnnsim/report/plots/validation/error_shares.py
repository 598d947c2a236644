"""How many estimates are too low, and by how much: the share of rows up to each error, a line for each estimator."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from vdnnsim.report.chart import ErrorShares
from vdnnsim.report.plots.style import ABOVE, ALARM, as_png, new_figure, ruled, write
from vdnnsim.report.plots.validation.parity import COLORS

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
    look = {"ha": "right", "va": "top", "color": ALARM, "fontweight": "bold"}
    write(axes, slide.limit_name, (slide.limit, 0.985), (-8, 0), ABOVE, **look)
    for (name, errors), color in zip(slide.errors, COLORS, strict=False):
        ordered = sorted(errors)
        shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
        axes.step([ends[0], *ordered, ends[1]], [0.0, *shares, 1.0], where="post", color=color, linewidth=3, label=name)
    axes.xaxis.set_major_locator(MultipleLocator(0.1 if ends[1] - ends[0] < 1 else 0.2))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{100 * value:+.0f} %" if round(100 * value) else "0")
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set(xlim=ends, ylim=(0, 1.0), xlabel="error of the estimate", ylabel="share of rows with that error or less")
    figure.legend(loc="lower center", ncols=len(slide.errors), frameon=False, fontsize=16, bbox_to_anchor=(0.5, 0.005))
    ruled(axes, "both")
    return figure


draw_error_shares = as_png(error_shares_figure)
