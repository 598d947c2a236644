"""Figures 12, 14 and 15 of the vDNN paper, and its power: what policies offload, their speed, their watts."""

from statistics import fmean

from pandas import DataFrame

from reports.charts import Axis, Chart, Panel, Series, Slot, Tint
from reports.page import PERCENT, SimulatedFigure, stated
from reports.vdnn2016.figure_parts import (
    POLICY_LABELS,
    POLICY_TINTS,
    attributes,
    beside_the_paper,
    bytes_axis,
    capacity_level,
    case_names,
    extremes,
    result_columns,
    whole_percent,
)
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.vdnn2016.metrics import host_share
from vdnnsim.claims.vdnn2016.power import SAMPLING_PERIOD_S, power_curve
from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VERY_DEEP, VdnnRuns
from vdnnsim.files.messages import listed
from vdnnsim.report.scale import Scale, percent
from vdnnsim.units import format_bytes, format_seconds

_DEEP: tuple[NetworkBatch, ...] = (("vgg16", 32), *VERY_DEEP)

_CASES = CONVENTIONAL[:-1]
"""VGG-16 (256) cannot be trained without vDNN, so the paper compares the other five."""

_POWER_POLICIES = {"base": "base(p)", "dyn": "vdnn_dyn", "all": "vdnn_all(p)"}

_MEMORY_OPTIMAL = {"base": "base(m)", "dyn": "vdnn_conv(m)", "all": "vdnn_all(m)"}
"""Of VGG-16 (128), which the paper runs with memory-optimal algorithms."""


def figure_12(runs: VdnnRuns) -> SimulatedFigure:
    """What each policy offloads to pinned host memory."""
    names = case_names(CONVENTIONAL)
    policies = {"vdnn_all(p)": "all", "vdnn_conv(p)": "conv", "vdnn_dyn": "dyn"}
    results = {policy: [runs.result(*case, policy) for case in CONVENTIONAL] for policy in policies}
    sizes = {policy: [each.metrics.offloaded_bytes for each in row] for policy, row in results.items()}
    everything = sizes["vdnn_all(p)"]
    shares = [conv / both for conv, both in zip(sizes["vdnn_conv(p)"], everything, strict=True)]
    idle = [name for name, nbytes in zip(names, sizes["vdnn_dyn"], strict=True) if not nbytes]
    slots = [
        Slot.of(label, POLICY_TINTS[policy], sizes[policy], [each.fits for each in results[policy]])
        for policy, label in policies.items()
    ]
    return SimulatedFigure(
        stem="figure12",
        columns=result_columns(
            [(case, policy, results[policy][n]) for n, case in enumerate(CONVENTIONAL) for policy in policies],
            "offloaded_bytes",
            "host_memory_bytes",
        ),
        chart=Chart(
            f"vDNN_all offloads up to {format_bytes(max(everything))}; vDNN_dyn leaves {len(idle)} of {len(names)} "
            "networks on the GPU",
            "Fig. 12: bytes offloaded in one iteration; the same under (m) and (p); * does not fit with (p)",
            (Panel(names, tuple(slots), bytes_axis("offloaded to the host", everything)),),
        ),
        facts={
            "all": extremes(names, everything, format_bytes),
            "conv": extremes(names, shares),
            "idle": listed(idle) or "none",
        },
    )


def figure_14(runs: VdnnRuns) -> SimulatedFigure:
    """Speed of each policy against the oracular baseline."""
    names = case_names(CONVENTIONAL)
    results = {policy: [runs.result(*case, policy) for case in CONVENTIONAL] for policy in POLICY_LABELS}
    speeds = {policy: [each.feature_performance_ratio for each in row] for policy, row in results.items()}
    failing = [name for name, each in zip(names, results["base(p)"], strict=True) if not each.fits]
    dyn = speeds["vdnn_dyn"]
    losses = {policy: [1 - speed for speed in speeds[policy]] for policy in ("vdnn_all(m)", "vdnn_conv(m)")}
    shown = ("vdnn_all(m)", "vdnn_conv(m)", "vdnn_dyn")
    settled = [f"{each.algorithms} for {name}" for name, each in zip(names, results["vdnn_dyn"], strict=True)]
    return SimulatedFigure(
        stem="figure14",
        columns=result_columns(
            [(case, policy, results[policy][n]) for n, case in enumerate(CONVENTIONAL) for policy in POLICY_LABELS],
            *("feature_iteration_s", "feature_performance_ratio", "iteration_s", "performance_ratio"),
        ),
        chart=Chart(
            f"vDNN_dyn reaches {whole_percent(fmean(dyn))} of the oracular speed on average, "
            f"{whole_percent(min(dyn))} at worst",
            "Fig. 14: speed of the feature-extraction layers over that of base(p), six networks; the text of the "
            "paper beside the replay",
            tuple(
                beside_the_paper(
                    [POLICY_LABELS[policy] for policy in shown],
                    [1 - all_m, 1 - conv_m, dynamic],
                    [together(speeds[policy]) for policy in shown],
                    Axis(f"performance over base(p), {name}", PERCENT, 1.12),
                )
                for name, together, (all_m, conv_m, dynamic) in (
                    ("mean", fmean, stated("vdnn2016", "v-perf-1.mean", "v-perf-2.mean", "v-perf-3.mean")),
                    ("worst", min, stated("vdnn2016", "v-perf-1.worst", "v-perf-2.worst", "v-perf-3.worst")),
                )
            ),
        ),
        facts={
            "losses": ", and ".join(
                f"{percent(fmean(row))} on average under {POLICY_LABELS[policy]}, {extremes(names, row)}"
                for policy, row in losses.items()
            ),
            "dyn": f"{percent(fmean(dyn))} on average, {extremes(names, dyn)}",
            "settled": listed(settled),
            "failing": listed(failing) or "none",
        },
    )


def figure_15(runs: VdnnRuns) -> SimulatedFigure:
    """GPU and host memory of very deep networks."""
    names = case_names(_DEEP)
    dyn = [runs.result(*case, "vdnn_dyn") for case in _DEEP]
    base = [runs.oracle(*case) for case in _DEEP]
    both = zip(_DEEP, dyn, base, strict=True)
    pairs = [
        pair for case, of_dyn, of_base in both for pair in ((case, "vdnn_dyn", of_dyn), (case, "base(p)", of_base))
    ]
    gpu, before = ([each.metrics.allocated_bytes for each in of] for of in (dyn, base))
    host = [each.metrics.host_memory_bytes for each in dyn]
    host_shares = [host_share(runs, case, policy) for case, policy, _ in pairs]
    metrics = [each.metrics for _, _, each in pairs]
    on_gpu = (
        Slot.of("GPU memory, dyn", Tint.GPU_MEMORY, gpu, [each.fits for each in dyn]),
        Slot.of("GPU memory, base", Tint.BASE_P, before, [each.fits for each in base]),
    )
    on_host = (Slot.of("CPU memory, dyn", Tint.HOST_MEMORY, host),)
    return SimulatedFigure(
        stem="figure15",
        columns={
            **result_columns(pairs),
            "settled_on": [each.algorithms for _, _, each in pairs],
            **attributes(metrics, "allocated_bytes", "feature_allocated_bytes", prefix="gpu_"),
            **attributes(metrics, "host_memory_bytes"),
            "host_fraction": host_shares,
            "feature_performance_ratio": [each.feature_performance_ratio for _, _, each in pairs],
        },
        chart=Chart(
            f"vDNN_dyn holds {names[-1]} in {format_bytes(gpu[-1])} of GPU memory instead of "
            f"{format_bytes(before[-1])}",
            "Fig. 15: most GPU memory in use, and pinned CPU memory, whole network; * does not fit",
            (
                Panel(names, on_gpu, bytes_axis("GPU memory", before), level=capacity_level(runs)),
                Panel(names, on_host, bytes_axis("pinned CPU memory", before)),
            ),
        ),
        facts={
            "grows": before[-1] / before[0],
            "first": format_bytes(before[0]),
            "last": format_bytes(before[-1]),
            "gpu": extremes(names, gpu, format_bytes),
            "feature": format_bytes(max(each.metrics.feature_allocated_bytes for each in dyn)),
            "host": extremes(names[1:], host_shares[2::2]),
            "speeds": extremes(names, [each.feature_performance_ratio for each in dyn]),
        },
    )


def power_section(runs: VdnnRuns) -> SimulatedFigure:
    """Mean and maximum power of the baseline, of vDNN_dyn and of vDNN_all; the paper has it in words alone (V-D)."""
    names, slots = case_names(_CASES), len(_POWER_POLICIES)
    pairs = [
        (case, policy)
        for case in _CASES
        for policy in (_MEMORY_OPTIMAL if case == ("vgg16", 128) else _POWER_POLICIES).values()
    ]
    results = [runs.result(*case, policy) for case, policy in pairs]
    curves = [
        power_curve(result.trace, runs.simulator(*case).cost_model, runs.server)
        for (case, _), result in zip(pairs, results, strict=True)
    ]
    watts = DataFrame(
        {
            "mean_watts": [each.mean_watts for each in curves],
            "maximum_watts": [each.maximum_watts() for each in curves],
            "peak_watts": [max(each.watts) for each in curves],
            "energy_joules": [each.energy_joules for each in curves],
        }
    )
    over_base = watts / watts.groupby(watts.index // slots).transform("first") - 1
    overheads = over_base.rename(columns=lambda name: name.replace("watts", "overhead")).to_dict("list")
    found = {
        name: {slot: values[at::slots] for at, slot in enumerate(_POWER_POLICIES)} for name, values in overheads.items()
    }
    dyn = found["maximum_overhead"]["dyn"]
    bars = ("mean power", Tint.MEAN, "mean_watts"), ("maximum", Tint.MAXIMUM, "maximum_watts")
    drawn = tuple(
        Slot(
            tuple((Series(name, tint, tuple(watts[column][at::slots].tolist())),) for name, tint, column in bars),
            label,
            tuple(not each.fits for each in results[at::slots]),
        )
        for at, label in enumerate(_POWER_POLICIES)
    )
    return SimulatedFigure(
        stem="power",
        columns={
            **result_columns([(*pair, result) for pair, result in zip(pairs, results, strict=True)]),
            **watts.to_dict("list"),
            **{name: overheads[name] for name in ("mean_overhead", "maximum_overhead")},
        },
        chart=Chart(
            f"vDNN_dyn changes maximum power by {_signed(min(dyn))} to {_signed(max(dyn))}",
            f"Power section: mean over an iteration, and largest mean over {format_seconds(SAMPLING_PERIOD_S)}, which "
            "nvprof samples; VGG-16 (128) under (m); * does not fit",
            (Panel(names, drawn, Axis("GPU power", Scale("W", 1.0, 0))),),
        ),
        facts={
            "maximum": {slot: extremes(names, each, _signed) for slot, each in found["maximum_overhead"].items()},
            "mean": {slot: extremes(names, each, _signed) for slot, each in found["mean_overhead"].items()},
            "peaks": extremes(names, found["peak_overhead"]["all"], _signed),
            "idle": sum(not each.metrics.offloaded_bytes for each in results[1::slots]),
            "networks": len(names),
        },
    )


def _signed(fraction: float) -> str:
    # Adding zero turns -0.0 into 0.0.
    return f"{round(100 * fraction, 1) + 0.0:+.1f} %"
