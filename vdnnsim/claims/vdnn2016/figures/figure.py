"""One figure of a paper, redrawn: its data, its chart, and what is to be said about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vdnnsim.analysis.columns import Measured, Row, Value, cells
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.claim import NetworkBatch, read_claims
from vdnnsim.claims.report import PERCENT, SimulatedFigure
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.report.chart import Axis, Panel, Series, Slot, Tint
from vdnnsim.report.scale import Scale, byte_scale, percent

POLICY_LABELS: Mapping[str, str] = {
    "vdnn_all(m)": "all(m)",
    "vdnn_all(p)": "all(p)",
    "vdnn_conv(m)": "conv(m)",
    "vdnn_conv(p)": "conv(p)",
    "vdnn_dyn": "dyn",
    "base(m)": "base(m)",
    "base(p)": "base(p)",
}
"""Our policies by what the paper's figures call them, in the order of their bars."""
POLICY_TINTS: Mapping[str, Tint] = {policy: Tint(label) for policy, label in POLICY_LABELS.items()}
_NAMES = {"alexnet": "AlexNet", "overfeat": "OverFeat", "googlenet": "GoogLeNet"}


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperFigure(SimulatedFigure):
    """A figure of the paper, and what the page says of its numbers, by the name that the template has for it."""

    facts: Mapping[str, object]


Builder = Callable[[VdnnRuns], PaperFigure]
"""Draws one figure from replays."""


def case_name(case: NetworkBatch) -> str:
    """The network as the paper writes it: `VGG-16 (64)`."""
    network, batch_size = case
    return f"{_NAMES.get(network, network.replace('vgg', 'VGG-'))} ({batch_size})"


def case_names(cases: Sequence[NetworkBatch]) -> tuple[str, ...]:
    """The networks as the paper writes them."""
    return tuple(case_name(case) for case in cases)


def beside_the_paper(groups: Sequence[str], stated: Sequence[float], replayed: Sequence[float], axis: Axis) -> Panel:
    """Bars of what the paper states beside those of the replay."""
    both = (("paper", Tint.BASE_M, stated), ("replay", Tint.GPU_MEMORY, replayed))
    return Panel(tuple(groups), tuple(bars(groups, *each) for each in both), axis)


def stated(*ids: str) -> tuple[float, ...]:
    """What the paper states in the claims with these ids, shares between 0 and 1."""
    expected = {claim.id: claim.expected for claim in read_claims("vdnn2016").claims}
    return tuple(float(expected[each] or 0.0) for each in ids)


def bytes_axis(label: str, values: Sequence[float], top: float = 0.0) -> Axis:
    """An axis for sizes, one decimal."""
    scale = byte_scale(values)
    return Axis(label, Scale(scale.unit, scale.factor, 1), top)


def percent_axis(label: str) -> Axis:
    """An axis from 0 to 100 %."""
    return Axis(label, PERCENT, 1.0)


def result_rows(
    header: Sequence[str], results: Iterable[tuple[NetworkBatch, str, PolicyResult]], **more: Sequence[Value]
) -> tuple[Row, ...]:
    """Return a row for each result of a network under a policy; `more` has columns that no table of results has."""
    rows = []
    for number, ((network, batch_size), policy, result) in enumerate(results):
        stated: dict[str, Value] = {"network": network, "batch_size": batch_size, "policy": policy, "fits": result.fits}
        rows.append(cells(header, stated | {name: column[number] for name, column in more.items()}, _measured(result)))
    return tuple(rows)


def _measured(result: PolicyResult) -> Measured:
    metrics, ratios = result.metrics, (result.performance_ratio, result.feature_performance_ratio)
    return Measured(result.algorithms, "", metrics, *ratios, metrics.images_per_s)


def bars(groups: Sequence[str], name: str, tint: Tint, values: Iterable[float], fits: Sequence[bool] = ()) -> Slot:
    """Return a bar for each group, of one colour of the legend; those that do not fit are marked."""
    series = Series(name, tint, tuple(map(float, values)))
    return Slot("", ((series,),), tuple(not each for each in fits) or (False,) * len(groups))


def whole_percent(fraction: float) -> str:
    """Return a fraction for a title: `53 %`."""
    return f"{100 * fraction:.0f} %"


def extremes(names: Sequence[str], values: Sequence[float], text: Callable[[float], str] = percent) -> str:
    """Return the least and the greatest of some values with where they are: `2.0 % for conv1 to 9.0 % for conv2`."""
    least, greatest = min(values), max(values)
    first, last = names[values.index(least)], names[values.index(greatest)]
    return f"{text(least)} for {first} to {text(greatest)} for {last}"
