"""Parts of the figures of the vDNN paper: names of networks and policies, columns, axes, panels, extremes."""

from collections.abc import Callable, Mapping, Sequence

from reports.charts import Axis, Level, Panel, Slot, Tint
from reports.page import PERCENT, SimulatedFigure
from vdnnsim.analysis.columns import COLUMNS, Measured, Value
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.report.scale import Scale, byte_scale, percent
from vdnnsim.units import format_bytes

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


Builder = Callable[[VdnnRuns], SimulatedFigure]
"""Draws one figure from replays."""


def case_name(case: NetworkBatch) -> str:
    """The network as the paper writes it: `VGG-16 (64)`."""
    network, batch_size = case
    return f"{_NAMES.get(network, network.replace('vgg', 'VGG-'))} ({batch_size})"


def case_names(cases: Sequence[NetworkBatch]) -> tuple[str, ...]:
    """The networks as the paper writes them."""
    return tuple(case_name(case) for case in cases)


def case_columns(cases: Sequence[NetworkBatch]) -> dict[str, Sequence[Value]]:
    """Columns of the networks and their batch sizes."""
    return {"network": [network for network, _ in cases], "batch_size": [batch_size for _, batch_size in cases]}


def beside_the_paper(groups: Sequence[str], stated: Sequence[float], replayed: Sequence[float], axis: Axis) -> Panel:
    """Bars of what the paper states beside those of the replay."""
    both = (("paper", Tint.BASE_M, stated), ("replay", Tint.GPU_MEMORY, replayed))
    return Panel(tuple(groups), tuple(Slot.of(*each) for each in both), axis)


def bytes_axis(label: str, values: Sequence[float]) -> Axis:
    """An axis for sizes, one decimal."""
    scale = byte_scale(values)
    return Axis(label, Scale(scale.unit, scale.factor, 1))


def capacity_level(runs: VdnnRuns) -> Level:
    """A line at the memory of the GPU."""
    nbytes = runs.server.gpu.memory_bytes
    return Level(f"capacity {format_bytes(nbytes)}", nbytes)


def percent_axis(label: str) -> Axis:
    """An axis from 0 to 100 %."""
    return Axis(label, PERCENT, 1.0)


def attributes(things: Sequence[object], *names: str, prefix: str = "") -> dict[str, Sequence[Value]]:
    """Columns of attributes of things."""
    return {f"{prefix}{name}": [getattr(each, name) for each in things] for name in names}


def result_columns(
    results: Sequence[tuple[NetworkBatch, str, PolicyResult]], *names: str
) -> dict[str, Sequence[Value]]:
    """Columns of results of networks under policies: what names each, whether it fits, and those of these names."""
    measured = [_measured(each) for _, _, each in results]
    return {
        **case_columns([case for case, _, _ in results]),
        "policy": [policy for _, policy, _ in results],
        "fits": [each.fits for _, _, each in results],
        **{name: [COLUMNS[name].of(each) for each in measured] for name in names},
    }


def _measured(result: PolicyResult) -> Measured:
    metrics, ratios = result.metrics, (result.performance_ratio, result.feature_performance_ratio)
    return Measured(result.algorithms, "", metrics, *ratios, metrics.samples_per_s)


def whole_percent(fraction: float) -> str:
    """Return a fraction for a title: `53 %`."""
    return f"{100 * fraction:.0f} %"


def extremes(names: Sequence[str], values: Sequence[float], text: Callable[[float], str] = percent) -> str:
    """Return the least and the greatest of some values with where they are: `2.0 % for conv1 to 9.0 % for conv2`."""
    least, greatest = min(values), max(values)
    first, last = names[values.index(least)], names[values.index(greatest)]
    return f"{text(least)} for {first} to {text(greatest)} for {last}"
