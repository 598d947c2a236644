"""Figures 9 to 14 of Jin et al. (2018) from simulation; what the paper's show beyond its text is not in numbers."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from reports.charts import Axis, Chart, Level, Panel, Slot, Tint
from reports.layrub2018.readings import WELL_KNOWN
from reports.layrub2018.tables import HYBRID, Record
from reports.page import PERCENT, SimulatedFigure, stated
from vdnnsim.analysis.columns import Value
from vdnnsim.claims.layrub2018.metrics import map_reduction, overhead
from vdnnsim.claims.layrub2018.runs import LayrubCase, LayrubRuns
from vdnnsim.report.scale import Scale, byte_scale
from vdnnsim.units import MIB

_STRATEGIES: Final = {
    "layrub_intra": ("within layers", Tint.CONV_P),
    "layrub_inter": ("between layers", Tint.ALL_P),
    HYBRID: ("hybrid", Tint.DYN),
}
_SYSTEMS: Final = {
    "tensorflow": ("TensorFlow", Tint.BASE_P),
    "geeps": ("GeePS", Tint.ALL_P),
    "memonger": ("MXNet, memonger", Tint.CONV_P),
    HYBRID: ("Layrub", Tint.DYN),
}
_DEEP: Final = tuple((f"resnet{depth}", 32) for depth in (34, 50, 101, 152, 1001))
_WIDE: Final = tuple((f"wrn_{name}", 128) for name in ("16_1", "16_10", "16_20", "8_128", "8_256"))
_COMPARED: Final = (
    ("lenet", 64),
    ("cifar10_quick", 100),
    ("alexnet", 128),
    ("caffenet", 128),
    ("vgg_d_13conv", 64),
    ("googlenet", 128),
    ("resnet34", 32),
)
"""Seven networks, for Fig. 12 has as many; which, the text says of three."""
_UPRIGHT_LABELS = 8


def paper_figures(runs: LayrubRuns, table_5: Sequence[Record]) -> tuple[SimulatedFigure, ...]:
    """Return all figures; the last is of the numbers of Table 5."""
    return (
        _deep(runs),
        _shares(runs, "figure10", _WIDE, "Fig. 10: activations and gradients of wide networks, over Caffe's blobs"),
        _shares(runs, "figure11", WELL_KNOWN, "Fig. 11: activations and gradients of known networks, over Caffe's"),
        _systems(runs),
        _performance(runs),
        _overheads(table_5),
    )


def _deep(runs: LayrubRuns) -> SimulatedFigure:
    cases = _cases(_DEEP)
    (paper_mib,) = stated("layrub2018", "l-4.resnet1001")
    caffe = tuple(float(runs.blob_bytes(case)) for case in cases)
    taken = {policy: tuple(float(runs.maps_bytes(case, policy)) for case in cases) for policy in _STRATEGIES}
    growing = [Slot.of("Caffe", Tint.BASE_P, caffe), Slot.of(*_STRATEGIES["layrub_intra"], taken["layrub_intra"])]
    constant = [Slot.of(*_STRATEGIES[policy], taken[policy]) for policy in ("layrub_inter", HYBRID)]
    names = tuple(case.network.replace("resnet", "") for case in cases)
    level = Level(f"hybrid in the paper, {paper_mib:g} MiB, its MB", paper_mib * MIB)
    return SimulatedFigure(
        stem="figure09",
        columns=_columns(cases, {"caffe": caffe, **taken}, "maps_and_gradients_bytes"),
        chart=Chart(
            f"From ResNet-50 to ResNet-1001 the hybrid takes the same {taken[HYBRID][1] / MIB:.0f} MiB; "
            f"the paper: {paper_mib:g}",
            "Fig. 9: activations and gradients of ResNets (32), by depth; left what grows, right what does not",
            (
                Panel(names, tuple(growing), Axis("activations and gradients", _bytes(growing))),
                Panel(names, tuple(constant), Axis("activations and gradients", _bytes(constant)), level=level),
            ),
        ),
    )


def _shares(runs: LayrubRuns, stem: str, networks: Sequence[tuple[str, int]], subtitle: str) -> SimulatedFigure:
    cases = _cases(networks)
    shares = {policy: tuple(1 - map_reduction(runs, case, policy) for case in cases) for policy in _STRATEGIES}
    within, between, hybrid = (fmean(values) for values in shares.values())
    return SimulatedFigure(
        stem=stem,
        columns=_columns(cases, shares, "share_of_caffe"),
        chart=Chart(
            f"Reuse within layers leaves {PERCENT.text(within)} on average, between layers {PERCENT.text(between)}, "
            f"both {PERCENT.text(hybrid)}",
            subtitle,
            (_panel(cases, _slots(_STRATEGIES, shares), "share of Caffe"),),
        ),
    )


def _systems(runs: LayrubRuns) -> SimulatedFigure:
    cases = _cases(_COMPARED)
    taken = {policy: tuple(float(runs.memory(case, policy).runtime) for case in cases) for policy in _SYSTEMS}
    least = sum(taken[HYBRID][i] == min(values[i] for values in taken.values()) for i in range(len(cases)))
    slots = _slots(_SYSTEMS, taken)
    return SimulatedFigure(
        stem="figure12",
        columns=_columns(cases, taken, "process_bytes"),
        chart=Chart(
            f"Layrub takes least of four systems for {least} of {len(cases)} networks",
            "Fig. 12: runtime memory, with context and handles; kernels of one cost model, rules of each system",
            (Panel(_names(cases), slots, Axis("runtime memory", _bytes(slots))),),
        ),
    )


def _performance(runs: LayrubRuns) -> SimulatedFigure:
    cases = _cases((("alexnet", 128), ("googlenet", 128), ("vgg_d_13conv", 64)))
    drawn = {
        "geeps": ("GeePS", Tint.BASE_P),
        "vdnn_all(m)": ("vDNN(m)", Tint.ALL_P),
        "vdnn_all(p)": ("vDNN(p)", Tint.CONV_P),
        HYBRID: ("Layrub", Tint.DYN),
    }
    (paper,) = stated("layrub2018", "l-15.layrub")
    values = {policy: tuple(1 / (1 + overhead(runs, case, policy, "caffe")) for case in cases) for policy in drawn}
    return SimulatedFigure(
        stem="figure13",
        columns=_columns(cases, values, "performance_over_caffe"),
        chart=Chart(
            f"VGG-16 (64) keeps {PERCENT.text(values[HYBRID][-1])} of Caffe's speed under Layrub, "
            f"{PERCENT.text(paper)} in the paper, and {PERCENT.text(values['vdnn_all(m)'][-1])} under vDNN(m)",
            "Fig. 13: performance over Caffe; above 100 % where a system may take more workspace than Caffe",
            (_panel(cases, _slots(drawn, values), "performance over Caffe"),),
        ),
    )


def _overheads(table_5: Sequence[Record]) -> SimulatedFigure:
    panels, means = [], []
    papers = stated("layrub2018", "t-5.mean.layrub", "t-5.mean.memonger")
    for system, light, dark in (("Layrub", Tint.ALL_M, Tint.ALL_P), ("MXNet", Tint.CONV_M, Tint.CONV_P)):
        rows = [row for row in table_5 if row["system"] == system]
        paper, replay = ([row[name] for row in rows] for name in ("paper_overhead", "overhead"))
        slots = [Slot.of(f"{system}, paper", light, paper), Slot.of(f"{system}, replay", dark, replay)]
        names = tuple(_network(row["network"]).replace(" ", "\n", 1) for row in rows)
        panels.append(Panel(names, tuple(slots), Axis("extra time", PERCENT, 0.9)))
        means.append(fmean(replay))
    return SimulatedFigure(
        stem="figure14",
        columns={
            name: [row[name] for row in table_5]
            for name in ("network", "batch_size", "system", "paper_overhead", "overhead")
        },
        chart=Chart(
            f"Layrub costs {PERCENT.text(means[0])} of an iteration on average, {PERCENT.text(papers[0])} in the "
            f"paper; recomputation {PERCENT.text(means[1])} and {PERCENT.text(papers[1])}",
            "Fig. 14: extra time at the pace of the paper's base, left Layrub over Caffe, right MXNet with memonger",
            tuple(panels),
        ),
    )


def _cases(networks: Sequence[tuple[str, int]]) -> list[LayrubCase]:
    return [LayrubCase("k40m", network, batch_size) for network, batch_size in networks]


def _names(cases: Sequence[LayrubCase]) -> tuple[str, ...]:
    return tuple(f"{_network(case.network)}\n({case.batch_size})" for case in cases)


def _network(name: str) -> str:
    return name.replace("vgg_d_13conv", "vgg16").removesuffix("_quick").replace("_", " ")


def _columns(
    cases: Sequence[LayrubCase], values: Mapping[str, Sequence[float]], name: str
) -> dict[str, Sequence[Value]]:
    """Return the columns of values by policy, the networks of one after those of the other."""
    places = [(policy, number, case) for policy in values for number, case in enumerate(cases)]
    return {
        "network": [case.network for _, _, case in places],
        "batch_size": [case.batch_size for _, _, case in places],
        "policy": [policy for policy, _, _ in places],
        name: [values[policy][number] for policy, number, _ in places],
    }


def _slots(looks: Mapping[str, tuple[str, Tint]], values: Mapping[str, tuple[float, ...]]) -> tuple[Slot, ...]:
    return tuple(Slot.of(*looks[policy], of_policy) for policy, of_policy in values.items())


def _panel(cases: Sequence[LayrubCase], slots: Sequence[Slot], label: str) -> Panel:
    # More than eight labels are turned, and have room for a line.
    names = _names(cases) if len(cases) <= _UPRIGHT_LABELS else tuple(_network(case.network) for case in cases)
    return Panel(names, tuple(slots), Axis(label, PERCENT))


def _bytes(slots: Sequence[Slot]) -> Scale:
    scale = byte_scale([value for slot in slots for bar in slot.bars for series in bar for value in series.values])
    return Scale(scale.unit, scale.factor, 1 if scale.unit == "GiB" else 0)
