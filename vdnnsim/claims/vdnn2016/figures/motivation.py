"""Figures 1 and 4: what the network-wide allocation takes, what it holds, and how little of it one layer uses."""

from collections import Counter
from itertools import pairwise

from vdnnsim.analysis.layers import largest_layer
from vdnnsim.analysis.memory import everything, features_only
from vdnnsim.claims.report import SimulatedFigure
from vdnnsim.claims.vdnn2016.figures.figure import (
    bytes_axis,
    case_columns,
    case_names,
    extremes,
    percent_axis,
    whole_percent,
)
from vdnnsim.claims.vdnn2016.metrics import feature_share
from vdnnsim.claims.vdnn2016.runs import ALL_TEN, VdnnRuns
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.files.messages import listed
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.report.chart import Chart, Level, Panel, Points, Series, Slot, Tint
from vdnnsim.units import format_bytes

_KINDS = (
    (BufferKind.FEATURE_MAP, Tint.FEATURE_MAPS),
    (BufferKind.GRADIENT_MAP, Tint.GRADIENT_MAPS),
    (BufferKind.WEIGHTS, Tint.WEIGHTS),
    (BufferKind.WEIGHT_GRADIENT, Tint.WEIGHT_GRADIENTS),
    (BufferKind.WORKSPACE, Tint.WORKSPACE),
)


def figure_01(runs: VdnnRuns) -> SimulatedFigure:
    """Memory of the baseline, and the largest share of it that one layer uses."""
    names, capacity = case_names(ALL_TEN), runs.server.gpu.memory_bytes
    sizes = [runs.oracle(*case).metrics.max_memory_bytes for case in ALL_TEN]
    needs = []
    for case in ALL_TEN:
        simulator = runs.simulator(*case)
        kernels = choose_kernels(simulator.workload, simulator.costs, Algorithms.PERFORMANCE_OPTIMAL)
        needs.append(largest_layer(simulator.workload, kernels))
    shares = [need.total / size for (_, need), size in zip(needs, sizes, strict=True)]
    over = [name for name, size in zip(names, sizes, strict=True) if size > capacity]
    fits = [runs.oracle(*case).fits for case in ALL_TEN]
    used = Points(
        "largest fraction that one layer uses", percent_axis("fraction used layer-wise"), (tuple(shares),), joined=True
    )
    base = Slot.of("base(p), whole network", Tint.GPU_MEMORY, sizes, fits)
    level = Level(f"capacity {format_bytes(capacity)}", capacity)
    return SimulatedFigure(
        stem="figure01",
        columns={
            **case_columns(ALL_TEN),
            "base_p_max_memory_bytes": sizes,
            "fits": fits,
            "largest_layer": [layer.name for layer, _ in needs],
            "largest_layer_bytes": [need.total for _, need in needs],
            "largest_fraction_used": shares,
        },
        chart=Chart(
            f"{len(over)} of {len(names)} networks exceed {format_bytes(capacity)}; "
            f"one layer uses {whole_percent(max(shares))} of the memory at most",
            "Fig. 1: base(p), network-wide allocation; * does not fit; batch size in parentheses",
            (Panel(names, (base,), bytes_axis("GPU memory", sizes), used, level),),
        ),
        facts={
            "sizes": extremes(names, sizes, format_bytes),
            "capacity": format_bytes(capacity),
            "over": f"{len(over)} of the {len(names)}: {listed(over) or 'none'}",
            "unused": extremes(names, [1 - share for share in shares]),
            "largest_is_conv": sum(layer.kind is LayerKind.CONV for layer, _ in needs),
            "networks": len(names),
        },
    )


def figure_04(runs: VdnnRuns) -> SimulatedFigure:
    """The baseline's memory by what it holds."""
    names = case_names(ALL_TEN)
    traces = [runs.oracle(*case).trace for case in ALL_TEN]
    whole = [_by_kind(trace, features=False) for trace in traces]
    features = [_by_kind(trace, features=True) for trace in traces]
    totals = [sum(kinds.values()) for kinds in whole]
    map_shares = [kinds[BufferKind.FEATURE_MAP] / total for kinds, total in zip(whole, totals, strict=True)]
    weight_shares = [
        (kinds[BufferKind.WEIGHTS] + kinds[BufferKind.WEIGHT_GRADIENT]) / total
        for kinds, total in zip(whole, totals, strict=True)
    ]
    stage_shares = [sum(part.values()) / total for part, total in zip(features, totals, strict=True)]
    stack = tuple(Series(kind.value, tint, tuple(float(kinds[kind]) for kinds in whole)) for kind, tint in _KINDS)
    label = "fraction of feature maps"
    of_maps = Points(label, percent_axis(label), (tuple(map_shares),), joined=True)
    return SimulatedFigure(
        stem="figure04",
        columns={
            **case_columns(ALL_TEN),
            **{f"{kind.name.lower()}_bytes": [kinds[kind] for kinds in whole] for kind, _ in _KINDS},
            **{
                f"feature_extraction_{kind.name.lower()}_bytes": [kinds[kind] for kinds in features]
                for kind, _ in _KINDS
            },
            "feature_map_fraction": map_shares,
            "feature_extraction_fraction": stage_shares,
        },
        chart=Chart(
            f"Feature maps take {whole_percent(map_shares[0])} of the memory of {names[0]}, "
            f"{whole_percent(map_shares[-1])} of {names[-1]}",
            "Fig. 4: base(p), network-wide allocation by what it holds; batch size in parentheses",
            (Panel(names, (Slot((stack,)),), bytes_axis("GPU memory", totals), of_maps),),
        ),
        facts={
            "maps": extremes(names, map_shares),
            "grows": all(a < b for a, b in pairwise(map_shares[ALL_TEN.index(("vgg116", 32)) :])),
            "weights": extremes(names, weight_shares),
            "alexnet": stage_shares[0],
            "vgg16": stage_shares[ALL_TEN.index(("vgg16", 256))],
            "summed": feature_share(runs, ALL_TEN[0], "sum_of_layers"),
        },
    )


def _by_kind(trace: IterationTrace, *, features: bool) -> Counter[BufferKind]:
    """Bytes of all buffers that the baseline allocates, which it holds all at once."""
    select = features_only if features else everything
    buffers = trace.plan.buffers
    sizes: Counter[BufferKind] = Counter()
    for change in trace.memory:
        if change.delta_bytes > 0 and select(buffers[change.buffer]):
            sizes[buffers[change.buffer].kind] += change.delta_bytes
    return sizes
