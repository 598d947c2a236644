"""Figures 1, 4 and 11 of the vDNN paper: what the baseline allocates, what of it is used, what policies save."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean

from reports.charts import Chart, Panel, Points, Series, Slot, Tint
from reports.page import SimulatedFigure, stated
from reports.vdnn2016.figure_parts import (
    POLICY_LABELS,
    beside_the_paper,
    bytes_axis,
    capacity_level,
    case_columns,
    case_names,
    extremes,
    percent_axis,
    result_columns,
    whole_percent,
)
from vdnnsim.analysis.memory import features_only
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.vdnn2016.layers import largest_layer
from vdnnsim.claims.vdnn2016.metrics import feature_share
from vdnnsim.claims.vdnn2016.runs import ALL_TEN, CONVENTIONAL, VdnnRuns
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.files.messages import listed
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.report.scale import percent
from vdnnsim.units import format_bytes

_MAP_SHARE = "fraction of feature maps"

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
    sizes = [runs.oracle(*case).metrics.allocated_bytes for case in ALL_TEN]
    simulators = [runs.simulator(*case) for case in ALL_TEN]
    needs = [
        largest_layer(each.workload, choose_kernels(each.workload, each.costs, Algorithms.PERFORMANCE_OPTIMAL))
        for each in simulators
    ]
    shares = [need.total / size for (_, need), size in zip(needs, sizes, strict=True)]
    over = [name for name, size in zip(names, sizes, strict=True) if size > capacity]
    fits = [runs.oracle(*case).fits for case in ALL_TEN]
    used = Points(
        "largest fraction that one layer uses", percent_axis("fraction used layer-wise"), (tuple(shares),), joined=True
    )
    base = Slot.of("base(p), whole network", Tint.GPU_MEMORY, sizes, fits)
    return SimulatedFigure(
        stem="figure01",
        columns={
            **case_columns(ALL_TEN),
            "base_p_allocated_bytes": sizes,
            "fits": fits,
            "largest_layer": [layer.name for layer, _ in needs],
            "largest_layer_bytes": [need.total for _, need in needs],
            "largest_fraction_used": shares,
        },
        chart=Chart(
            f"{len(over)} of {len(names)} networks exceed {format_bytes(capacity)}; "
            f"one layer uses {whole_percent(max(shares))} of the memory at most",
            "Fig. 1: base(p), network-wide allocation; * does not fit; batch size in parentheses",
            (Panel(names, (base,), bytes_axis("GPU memory", sizes), used, capacity_level(runs)),),
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
    """Memory of the baseline by kind of buffer."""
    names = case_names(ALL_TEN)
    traces = [runs.oracle(*case).trace for case in ALL_TEN]
    whole = [_by_kind(trace, features=False) for trace in traces]
    features = [_by_kind(trace, features=True) for trace in traces]
    totals = [sum(kinds.values()) for kinds in whole]

    def shares(parts: Iterable[int]) -> list[float]:
        return [part / total for part, total in zip(parts, totals, strict=True)]

    map_shares = shares(kinds[BufferKind.FEATURE_MAP] for kinds in whole)
    weight_shares = shares(kinds[BufferKind.WEIGHTS] + kinds[BufferKind.WEIGHT_GRADIENT] for kinds in whole)
    stage_shares = shares(sum(part.values()) for part in features)
    stack = tuple(Series(kind.value, tint, tuple(float(kinds[kind]) for kinds in whole)) for kind, tint in _KINDS)
    of_maps = Points(_MAP_SHARE, percent_axis(_MAP_SHARE), (tuple(map_shares),), joined=True)
    return SimulatedFigure(
        stem="figure04",
        columns={
            **case_columns(ALL_TEN),
            **{
                f"{part}{kind.name.lower()}_bytes": [kinds[kind] for kinds in sizes]
                for part, sizes in (("", whole), ("feature_extraction_", features))
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


def figure_11(runs: VdnnRuns) -> SimulatedFigure:
    """Mean and maximum memory of each policy, and what the mean saves."""
    names = case_names(CONVENTIONAL)
    results = {(case, policy): runs.result(*case, policy) for case in CONVENTIONAL for policy in POLICY_LABELS}
    whole = {case: runs.oracle(*case).metrics.allocated_bytes for case in CONVENTIONAL}

    means = [each.metrics.mean_allocated_bytes for each in results.values()]
    maxima = [each.metrics.allocated_bytes for each in results.values()]

    def saved(sizes: Sequence[float]) -> list[float]:
        """One minus the sizes of all results over the whole baselines of their networks."""
        return [1 - size / whole[case] for (case, _), size in zip(results, sizes, strict=True)]

    def savings(policy: str, which: int) -> list[float]:
        """One minus mean (0) or maximum (1) over the whole baseline, by network."""
        return [1 - _drawn(results[case, policy])[which] / whole[case] for case in CONVENTIONAL]

    offloading = ("vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(p)", "vdnn_dyn")
    best = [max(savings(policy, 0)[i] for policy in POLICY_LABELS) for i in range(len(CONVENTIONAL))]
    spare = runs.server.gpu.memory_bytes - results[("vgg16", 128), "base(m)"].metrics.allocated_bytes
    without_pool = runs.result("vgg16", 128, "vdnn_all(m, prefetch_search=fig10_without_pool)")
    base_fits, dyn_fits = (
        sum(results[case, policy].fits for case in CONVENTIONAL) for policy in ("base(p)", "vdnn_dyn")
    )
    return SimulatedFigure(
        stem="figure11",
        columns={
            **result_columns(
                [(*key, result) for key, result in results.items()],
                "feature_step_mean_allocated_bytes",
                "feature_allocated_bytes",
            ),
            "whole_mean_allocated_bytes": means,
            "whole_allocated_bytes": maxima,
            "mean_savings_of_baseline": saved([_drawn(each)[0] for each in results.values()]),
            "max_savings_of_baseline": saved([_drawn(each)[1] for each in results.values()]),
            "whole_mean_savings": saved(means),
            "whole_max_savings": saved(maxima),
        },
        chart=Chart(
            f"vDNN_all(m) cuts average memory by {whole_percent(fmean(savings('vdnn_all(m)', 0)))}; "
            f"vDNN_dyn fits {dyn_fits} of {len(names)} networks, base(p) {base_fits}",
            "Fig. 11: what feature extraction takes less than the whole base(p), mean of six networks; the text of the "
            "paper beside the replay",
            tuple(
                beside_the_paper(
                    [POLICY_LABELS[policy] for policy in offloading],
                    stated("vdnn2016", *(f"v-vm-{number}.{row}" for number in (3, 4, 5, 6))),
                    [fmean(savings(policy, which)) for policy in offloading],
                    percent_axis(f"reduction of {name} memory"),
                )
                for which, row, name in ((0, "avg", "average"), (1, "max", "maximum"))
            ),
        ),
        facts={
            "savings": "; ".join(
                f"{percent(fmean(savings(policy, 1)))} and {percent(fmean(savings(policy, 0)))} under "
                f"{POLICY_LABELS[policy]}"
                for policy in offloading
            ),
            "all_m": format_bytes(results[("vgg16", 128), "vdnn_all(m)"].metrics.feature_allocated_bytes),
            "best": extremes(names, best),
            "failing": len(names) - base_fits,
            "networks": len(names),
            "dyn_fits": dyn_fits,
            "spare": f"{format_bytes(abs(spare))} {'less' if spare >= 0 else 'more'}",
            "without_pool": format_bytes(without_pool.metrics.feature_allocated_bytes),
        },
    )


def _drawn(result: PolicyResult) -> tuple[float, float]:
    """Mean and maximum as the paper draws them: of feature extraction under vDNN, of all that base allocates."""
    metrics, is_base = result.metrics, result.policy.startswith("base")
    most = float(metrics.allocated_bytes if is_base else metrics.feature_allocated_bytes)
    return most if is_base else metrics.feature_step_mean_allocated_bytes, most


def _by_kind(trace: IterationTrace, *, features: bool) -> Counter[BufferKind]:
    """Bytes of all buffers that the baseline allocates, which it holds all at once."""
    sizes: Counter[BufferKind] = Counter()
    for change in trace.memory:
        buffer = trace.plan.buffers[change.buffer]
        if change.delta_bytes > 0 and (not features or features_only(buffer)):
            sizes[buffer.kind] += change.delta_bytes
    return sizes
