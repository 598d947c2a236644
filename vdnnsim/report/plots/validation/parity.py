"""Measured against simulated durations: equality as a diagonal, and beside it how far off each row is."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from vdnnsim.report.chart import Parity
from vdnnsim.report.plots.style import ALARM, GRID, INK, MUTED, as_png, keep_left_spine_only, new_figure, ruled
from vdnnsim.units import format_seconds

_BAND = "#dcebf5"
COLORS = ("#0072b2", "#d55e00")
MARKERS = ("o", "D")
_SPREAD = 0.5
"""Share of the height of a group over which its rows are spread, so that equal ones stay apart."""

_WIDE = 80
"""Ratio of longest to shortest from which only powers of ten have room on an axis."""

_LEAST_HALF_WIDTH = 1.6
"""The axis of errors reaches so many tolerances to either side at least."""


def parity_figure(parity: Parity) -> Figure:
    """Draw the slide; there must be at least one pair."""
    figure = new_figure(parity.title, parity.subtitle)
    diagonal, errors = figure.add_axes((0.085, 0.19, 0.37, 0.66)), figure.add_axes((0.655, 0.19, 0.32, 0.66))
    _draw_diagonal(diagonal, parity)
    _draw_errors(errors, parity)
    present = sorted({pair.kind for pair in parity.pairs})
    handles = [
        *(
            Line2D([], [], linestyle="", marker=MARKERS[kind], color=COLORS[kind], ms=10, label=parity.kinds[kind])
            for kind in present
        ),
        Patch(facecolor=_BAND, edgecolor=MUTED, label=parity.band),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), frameon=False, bbox_to_anchor=(0.5, 0.01))
    return figure


draw_parity = as_png(parity_figure)


def _draw_diagonal(axes: Axes, parity: Parity) -> None:
    seconds = [value for pair in parity.pairs for value in (pair.measured_s, pair.simulated_s)]
    low, high = min(seconds) / 1.3, max(seconds) * 1.3
    ends = [low, high]
    below, above = ([end * (1 + sign * parity.tolerance) for end in ends] for sign in (-1, 1))
    axes.fill_between(ends, below, above, color=_BAND, zorder=1)
    axes.plot(ends, ends, color=MUTED, linewidth=1.2, zorder=2)
    draw_pairs(axes, [(pair.kind, pair.measured_s, pair.simulated_s) for pair in parity.pairs], ms=9)
    scale_durations(axes, low, high, subs=(1.0, 2.0, 5.0) if high < _WIDE * low else (1.0,))
    axes.set_aspect("equal", adjustable="box")
    axes.set_xlabel("measured iteration time")
    axes.set_ylabel("simulated iteration time")


def draw_pairs(axes: Axes, pairs: Sequence[tuple[int, float, float]], **look: Any) -> None:  # noqa: ANN401  # as matplotlib's
    """Draw measured against simulated durations, each with the number of its kind."""
    for kind, (marker, color) in enumerate(zip(MARKERS, COLORS, strict=True)):
        places = [pair[1:] for pair in pairs if pair[0] == kind]
        across, up = zip(*places, strict=True) if places else ((), ())
        axes.plot(across, up, marker, color=color, markeredgecolor="white", zorder=3, **look)


def scale_durations(axes: Axes, low: float, high: float, subs: tuple[float, ...] = (1.0,)) -> None:
    """Make both axes logarithmic, of seconds from low to high, with ticks at so many times each power of ten."""
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _short_seconds(value)))
        axis.set_minor_formatter(NullFormatter())
    ruled(axes, "both")


def _short_seconds(seconds: float) -> str:
    """Return a tick of 1, 2 or 5 times a power of ten without the zeros behind its point: `20 ms`."""
    number, unit = format_seconds(seconds).split()
    return f"{float(number):g} {unit}"


def _draw_errors(axes: Axes, parity: Parity) -> None:
    groups = list(dict.fromkeys(pair.group for pair in parity.pairs))
    widest = max(abs(pair.error) for pair in parity.pairs)
    axes.axvspan(-parity.tolerance, parity.tolerance, color=_BAND, zorder=0)
    axes.axvline(0, color=MUTED, linewidth=1.2, zorder=1)
    for place, group in enumerate(groups):
        members = [pair for pair in parity.pairs if pair.group == group]
        for number, pair in enumerate(members):
            shift = (number / max(len(members) - 1, 1) - 0.5) * _SPREAD
            outside = abs(pair.error) > parity.tolerance
            axes.plot(
                pair.error,
                place + shift,
                marker=MARKERS[pair.kind],
                color=COLORS[pair.kind],
                markeredgecolor=ALARM if outside else "white",
                markeredgewidth=2.5 if outside else 1.0,
                ms=9,
                zorder=3,
            )
    for one, other in pairwise(range(len(groups))):
        axes.axhline((one + other) / 2, color=GRID, linewidth=1, zorder=0)
    half = max(_LEAST_HALF_WIDTH * parity.tolerance, 1.15 * widest)
    axes.set_xlim(-half, half)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_yticks(range(len(groups)), groups, fontsize=14 if len(groups) <= 12 else 11, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:+.3g} %" if value else "0"))
    axes.set_xlabel("error of the simulated time")
    keep_left_spine_only(axes)
