"""Figures 13 and 14: how much of the DRAM's bandwidth is used, and how fast each policy is."""

from statistics import fmean

from vdnnsim.analysis.power import convolution_traffic, copy_slowdown_bound
from vdnnsim.claims.claim import stated
from vdnnsim.claims.report import PERCENT, SimulatedFigure
from vdnnsim.claims.vdnn2016.figures.figure import (
    POLICY_LABELS,
    beside_the_paper,
    case_names,
    extremes,
    percent_axis,
    result_columns,
    whole_percent,
)
from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VdnnRuns
from vdnnsim.dnn.layers import Phase
from vdnnsim.files.messages import listed
from vdnnsim.report.chart import Axis, Chart, Level, Panel, Slot, Tint
from vdnnsim.report.scale import percent


def figure_13(runs: VdnnRuns) -> SimulatedFigure:
    """The most DRAM bandwidth that a kernel of each CONV layer of VGG-16 draws."""
    case = ("vgg16", 64)
    simulator = runs.simulator(*case)
    traces = runs.oracle(*case).trace, runs.result(*case, "vdnn_all(p)").trace
    alone, copied = (convolution_traffic(trace, simulator.cost_model, runs.server) for trace in traces)
    layers = list(dict.fromkeys(each.layer for each in alone))
    names = tuple(simulator.workload.graph.layers[layer].name for layer in layers)

    def most(*, backward: bool) -> tuple[float, ...]:
        """The greatest share of the peak among the kernels of a layer in one direction."""
        return tuple(
            max(
                each.kernel_utilization
                for each in alone
                if each.layer == layer and (each.phase is not Phase.FORWARD) is backward
            )
            for layer in layers
        )

    forward, backward = most(backward=False), most(backward=True)
    slowdowns = [each.copy_slowdown for each in copied]
    labels = [f"{each.phase.value} of {simulator.workload.graph.layers[each.layer].name}" for each in copied]
    slots = Slot.of("forward", Tint.FORWARD, forward), Slot.of("backward", Tint.BACKWARD, backward)
    left = 1 - copy_slowdown_bound(runs.server)
    level = Level(f"what a copy at the link's peak leaves of it, {percent(left)}", left)
    return SimulatedFigure(
        stem="figure13",
        columns={
            "layer": [simulator.workload.graph.layers[each.layer].name for each in alone],
            "phase": [each.phase.value for each in alone],
            "algorithm": [each.algorithm for each in alone],
            "seconds": [each.seconds for each in alone],
            "kernel_bytes": [each.kernel_bytes for each in alone],
            "kernel_bytes_per_s": [each.kernel_bytes_per_s for each in alone],
            "kernel_utilization": [each.kernel_utilization for each in alone],
            "all_p_copy_bytes": [each.copy_bytes for each in copied],
            "all_p_bytes_per_s": [each.bytes_per_s for each in copied],
            "all_p_utilization": [each.utilization for each in copied],
            "all_p_copy_slowdown_at_most": slowdowns,
        },
        chart=Chart(
            f"Convolutions draw at most {whole_percent(max(*forward, *backward))} of the DRAM's peak, "
            f"copies add {percent(max(slowdowns))}",
            "Fig. 13: VGG-16 (64) under base(p); traffic of the cost model, a mean over the kernel; the greater of the "
            "two backward kernels",
            (Panel(names, slots, percent_axis("maximum DRAM bandwidth utilization"), level=level, numbered=False),),
        ),
        facts={
            "forward": extremes(names, forward),
            "backward": extremes(names, backward),
            "both": extremes(labels, [each.utilization for each in copied]),
            "slowdown": max(slowdowns),
            "bound": copy_slowdown_bound(runs.server),
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
