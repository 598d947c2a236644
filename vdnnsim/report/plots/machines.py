"""Picture of a ranking of machines: time or cost of a step, its expected error, and the basis of kernel times."""

from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vdnnsim.analysis.machines import Ranking
from vdnnsim.cost.trust import Basis
from vdnnsim.report.palette import INK, MUTED
from vdnnsim.report.plots.style import (
    as_png,
    even_ticks,
    new_figure,
    plain_ticks,
    point_handle,
    ruled,
    write,
    write_legend,
)
from vdnnsim.report.scale import Scale, time_scale
from vdnnsim.units import format_bytes

_LOOKS: Final = {
    Basis.MEASURED: ("#0072b2", "o", "measured on the card"),
    Basis.FITTED: ("#0072b2", "o", "fitted to kernels or steps of the card"),
    Basis.CARRIED_OVER: ("#e69f00", "s", "carried over from another card"),
    Basis.DATASHEET: ("#8e2f6b", "D", "datasheet peaks, which no kernel reaches"),
}
_MOST_ROWS = 24
_MOST_LOOPS: Final = 12
"""Rows between which there is room for the loop that fits."""
_PLACE: Final = (0.21, 0.15, 0.5, 0.7)
_RIGHT: Final = 0.99


def machines_figure(ranking: Ranking, title: str, subtitle: str) -> Figure:
    """Draw a row for each machine that fits, the best on top, with a bar of its expected error."""
    offers = ranking.offers[:_MOST_ROWS]
    left_out = len(ranking.offers) - len(offers)
    rest = f"; {left_out} more in machines.csv" if left_out else ""
    figure = new_figure(title, f"{subtitle}; a bar reaches as far as steps are off on average{rest}")
    axes = figure.add_axes(_PLACE)
    if ranking.currency:
        offers = tuple(each for each in offers if each.cost is not None)
    values = [each.iteration_s if each.cost is None else each.cost for each in offers]
    scale = Scale(ranking.unit, 1.0, 2) if ranking.currency else time_scale(values)
    reached = [value / scale.factor for value in values]
    for row, (offer, value) in enumerate(zip(offers, values, strict=True)):
        color, marker, _ = _LOOKS[offer.trust.basis]
        if (span := offer.trust.range_s(offer.iteration_s)) is not None:
            ends = [value / scale.factor * end_s / offer.iteration_s for end_s in span]
            axes.plot(ends, (row, row), color=color, linewidth=7, alpha=0.3, solid_capstyle="butt", zorder=2)
            reached += ends
        face = "white" if span is None else color
        place = value / scale.factor, row
        axes.plot(*place, marker, color=color, markersize=9, markerfacecolor=face, markeredgewidth=2, zorder=3)
        policy, _, loop = offer.policy.partition(", ")
        more, below = (", …", "") if loop and len(offers) > _MOST_LOOPS else ("", loop)
        held = f"{format_bytes(offer.held_bytes)} of {format_bytes(offer.memory_bytes)}, {policy}{more}"
        text, at = f"{scale.with_digits([value]).text(value)}   {held}", ((1.02, row), axes.get_yaxis_transform())
        for each, offset, size, ink in ((text, 0, 12, INK), (below, -15, 9, MUTED)):
            write(axes, each, at[0], (0, offset), at[1], va="center", fontsize=size, color=ink, annotation_clip=False)
    axes.set_xscale("log")
    axes.set_xlim(min(reached, default=1) / 1.15, max(reached, default=1) * 1.15)
    plain_ticks(axes.xaxis, even_ticks(axes.xaxis))
    what = "cost" if ranking.currency else "time of a step"
    axes.set_xlabel(f"{what}, {scale.unit}, logarithmic")
    axes.set_yticks(range(len(offers)), [each.name for each in offers], fontsize=12)
    axes.set_ylim(max(len(offers), 4) - 0.4, -0.6)
    ruled(axes, "x")
    _make_room(axes)
    _write_legend(figure, ranking)
    return figure


def _make_room(axes: Axes) -> None:
    """Narrow the axes by the widest text beside them."""
    left, bottom, width, height = _PLACE
    widest = max((each.get_window_extent().width for each in axes.texts), default=0.0) / axes.figure.bbox.width
    axes.set_position((left, bottom, min(width, (_RIGHT - left - widest) / 1.02), height))


draw_machines = as_png(machines_figure)


def _write_legend(figure: Figure, ranking: Ranking) -> None:
    present = {each.trust.basis for each in ranking.offers}
    looks = dict.fromkeys(_LOOKS[basis] for basis in Basis if basis in present)
    handles = [point_handle(label, color, marker, 9) for color, marker, label in looks]
    if any(each.trust.range_s(1.0) is None for each in ranking.offers):
        handles.append(point_handle("error not known", MUTED, size=6, markerfacecolor="white"))
    write_legend(figure, handles)
