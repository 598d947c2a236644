"""How many estimates are too low, and by how much: the share of rows up to each error, a line for each estimator."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from vdnnsim.report.chart import ErrorShares
from vdnnsim.report.plots.style import ALARM, house_style, new_figure, png, ruled
from vdnnsim.report.plots.validation.parity import COLORS

_FURTHEST = 1.0
"""Errors beyond are drawn at the end of the axis."""


def draw_error_shares(slide: ErrorShares) -> bytes:
    """Draw the slide as PNG, in the style of the house; equal data give equal bytes."""
    with house_style():
        return png(error_shares_figure(slide))


def error_shares_figure(slide: ErrorShares) -> Figure:
    """Draw the slide; each estimator must have one error at least."""
    figure = new_figure(slide.title, slide.subtitle)
    axes = figure.add_axes((0.075, 0.17, 0.9, 0.67))
    everything = [error for _, errors in slide.errors for error in errors]
    ends = max(min(everything) - 0.05, -_FURTHEST), min(max(everything) + 0.05, _FURTHEST)
    axes.axvspan(ends[0], slide.limit, color="#fbeceb", zorder=0)
    axes.axvline(slide.limit, color=ALARM, linewidth=2, zorder=1)
    axes.annotate(
        slide.limit_name,
        (slide.limit, 0.985),
        xycoords=("data", "axes fraction"),
        xytext=(-8, 0),
        textcoords="offset points",
        ha="right",
        va="top",
        color=ALARM,
        fontweight="bold",
    )
    for (name, errors), color in zip(slide.errors, COLORS, strict=False):
        ordered = sorted(errors)
        shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
        axes.step([ends[0], *ordered, ends[1]], [0.0, *shares, 1.0], where="post", color=color, linewidth=3, label=name)
    axes.set_xlim(ends)
    axes.set_ylim(0, 1.0)
    axes.xaxis.set_major_locator(MultipleLocator(0.1 if ends[1] - ends[0] < 1 else 0.2))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{100 * value:+.0f} %" if round(100 * value) else "0")
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_xlabel("error of the estimate")
    axes.set_ylabel("share of rows with that error or less")
    figure.legend(loc="lower center", ncols=len(slide.errors), frameon=False, fontsize=16, bbox_to_anchor=(0.5, 0.005))
    ruled(axes, "both")
    return figure
