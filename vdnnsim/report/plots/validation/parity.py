"""Parity plot of measured against simulated durations, and their errors by group."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from vdnnsim.report.palette import ALARM, GRID, INK, MUTED
from vdnnsim.report.picture import Parity
from vdnnsim.report.plots.series import look
from vdnnsim.report.plots.style import as_png, keep_left_spine_only, new_figure, point_handle, ruled, write_legend
from vdnnsim.units import format_seconds

_BAND = "#dcebf5"
_MARKERS = ("o", "D")
_SPREAD = 0.5
"""Share of the height of a group over which its rows are spread."""
_WIDE = 80
"""Ratio of longest to shortest from which only powers of ten have ticks."""
_LEAST_HALF_WIDTH = 1.6
"""Least half width of the axis of errors, in tolerances."""


def parity_figure(parity: Parity) -> Figure:
    figure = new_figure(parity.title, parity.subtitle)
    diagonal, errors = figure.add_axes((0.085, 0.19, 0.37, 0.66)), figure.add_axes((0.655, 0.19, 0.32, 0.66))
    _draw_diagonal(diagonal, parity)
    _draw_errors(errors, parity)
    present = {pair.kind for pair in parity.pairs}
    handles = [handle for kind, handle in enumerate(kind_handles(parity.kinds)) if kind in present]
    write_legend(
        figure, [*handles, Patch(facecolor=_BAND, edgecolor=MUTED, label=parity.band)], bbox_to_anchor=(0.5, 0.01)
    )
    return figure


draw_parity = as_png(parity_figure)


def kind_handles(kinds: Sequence[str]) -> list[Line2D]:
    return [point_handle(kind, look(number)[0], _MARKERS[number]) for number, kind in enumerate(kinds)]


def _draw_diagonal(axes: Axes, parity: Parity) -> None:
    seconds = [value for pair in parity.pairs for value in (pair.measured_s, pair.simulated_s)]
    low, high = min(seconds) / 1.3, max(seconds) * 1.3
    below, above = ([end * (1 + sign * parity.tolerance) for end in (low, high)] for sign in (-1, 1))
    axes.fill_between((low, high), below, above, color=_BAND, zorder=1)
    draw_pairs(axes, [(pair.kind, pair.measured_s, pair.simulated_s) for pair in parity.pairs], low, high, ms=9)
    scale_durations(axes, low, high, subs=(1.0, 2.0, 5.0) if high < _WIDE * low else (1.0,))
    axes.set_aspect("equal", adjustable="box")
    axes.set_xlabel("measured iteration time")
    axes.set_ylabel("simulated iteration time")


def draw_pairs(axes: Axes, pairs: Sequence[tuple[int, float, float]], *ends: float, **drawn: Any) -> None:  # noqa: ANN401  # as matplotlib's
    axes.plot(ends, ends, color=MUTED, linewidth=1.2, zorder=2)
    for kind, marker in enumerate(_MARKERS):
        places = [pair[1:] for pair in pairs if pair[0] == kind]
        across, up = zip(*places, strict=True) if places else ((), ())
        axes.plot(across, up, marker, color=look(kind)[0], markeredgecolor="white", zorder=3, **drawn)


def scale_durations(axes: Axes, low: float, high: float, subs: tuple[float, ...] = (1.0,)) -> None:
    """Make both axes logarithmic, in seconds, with ticks at `subs` of each power of ten."""
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
            rim, width = (ALARM, 2.5) if abs(pair.error) > parity.tolerance else ("white", 1.0)
            drawn: Any = {"color": look(pair.kind)[0], "markeredgecolor": rim, "markeredgewidth": width}
            axes.plot(pair.error, place + shift, marker=_MARKERS[pair.kind], ms=9, zorder=3, **drawn)
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
