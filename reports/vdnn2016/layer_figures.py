"""Figures 5, 6 and 13 of the vDNN paper: memory, time and DRAM bandwidth of the layers of VGG-16."""

from collections import defaultdict
from dataclasses import dataclass

from reports.charts import Axis, Chart, Level, Panel, Points, Series, Slot, Tint
from reports.page import SimulatedFigure
from reports.vdnn2016.figure_parts import attributes, bytes_axis, extremes, percent_axis, whole_percent
from reports.vdnn2016.traffic import convolution_traffic
from vdnnsim.claims.vdnn2016.layers import forward_bytes
from vdnnsim.claims.vdnn2016.power import copy_slowdown_bound
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.dnn.layers import LayerKind, Phase, Stage
from vdnnsim.plans.trace import IterationTrace, Span
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.report.scale import percent, time_scale
from vdnnsim.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Kernel times of a layer without stalls, and its reuse distance, None where backward has no kernel.

    That of X is the time from the end of forward to the start of backward of its layer (Fig. 6).
    """

    layer: int
    forward_s: float
    backward_s: float
    reuse_distance_s: float | None


def layer_times(trace: IterationTrace) -> tuple[LayerTimes, ...]:
    """Return the times of each layer in the order of forward."""
    forward, backward = defaultdict[int, list[Span]](list), defaultdict[int, list[Span]](list)
    for span, kernel in trace.kernels:
        if kernel.phase is Phase.FORWARD:
            forward[kernel.layer].append(span)
        elif kernel.phase.is_backward:
            backward[kernel.layer].append(span)

    def total_s(spans: list[Span]) -> float:
        return sum((span.end_s - span.start_s for span in spans), 0.0)

    return tuple(
        LayerTimes(
            layer=layer,
            forward_s=total_s(spans),
            backward_s=total_s(backward[layer]),
            reuse_distance_s=backward[layer][0].start_s - spans[-1].end_s if backward[layer] else None,
        )
        for layer, spans in forward.items()
    )


def figure_05(runs: VdnnRuns) -> SimulatedFigure:
    """What each layer of VGG-16 (256) needs in forward."""
    simulator = runs.simulator("vgg16", 256)
    kernels = choose_kernels(simulator.workload, simulator.costs, Algorithms.PERFORMANCE_OPTIMAL)
    layers = [layer for layer in simulator.workload.graph.layers if layer.parameters]
    needs = [forward_bytes(simulator.workload, kernels, layer) for layer in layers]
    names = tuple(layer.name for layer in layers)
    left = [need.x + need.y + need.workspace for need in needs]
    whole = runs.oracle("vgg16", 256).metrics.allocated_bytes
    most = left.index(max(left))
    weights, workspaces = [need.weights for need in needs], [need.workspace for need in needs]
    stack = (
        Series("X and Y", Tint.FEATURE_MAPS, tuple(float(need.x + need.y) for need in needs)),
        Series("workspace", Tint.WORKSPACE, tuple(map(float, workspaces))),
    )
    in_classifier = sum(n.weights for n, layer in zip(needs, layers, strict=True) if layer.stage is Stage.CLASSIFIER)
    ratios = [a / b for a, b, layer in zip(left, weights, layers, strict=True) if layer.stage is Stage.FEATURES]
    axis = bytes_axis("feature maps and workspace", left)
    of_weights = Points("weights", bytes_axis("weights", weights), (tuple(map(float, weights)),), joined=False)
    return SimulatedFigure(
        stem="figure05",
        columns={
            "layer": names,
            "stage": [layer.stage.value for layer in layers],
            "algorithm": [kernels[layer.index, layer.training_phases[0]].algorithm for layer in layers],
            "x_bytes": [need.x for need in needs],
            "y_bytes": [need.y for need in needs],
            "workspace_bytes": workspaces,
            "weights_bytes": weights,
        },
        chart=Chart(
            f"One layer of VGG-16 (256) needs at most {format_bytes(left[most])} of the {format_bytes(whole)} "
            "allocated",
            "Fig. 5: per-layer memory in forward under the fastest algorithms, layers that have weights",
            (Panel(names, (Slot((stack,)),), axis, of_weights, numbered=False),),
        ),
        facts={
            "layer": names[most],
            "need": format_bytes(left[most]),
            "share": left[most] / whole,
            "whole": format_bytes(whole),
            "times_weights": min(ratios),
            "in_classifier": in_classifier / sum(weights),
            "with_workspace": sum(each > 0 for each in workspaces),
            "layers": len(layers),
            "workspace": format_bytes(max(workspaces)),
        },
    )


def figure_06(runs: VdnnRuns) -> SimulatedFigure:
    """Time and reuse distance of each layer of VGG-16 (64)."""
    simulator, result = runs.simulator("vgg16", 64), runs.oracle("vgg16", 64)
    layers = simulator.workload.graph.layers
    shown = (LayerKind.CONV, LayerKind.POOL, LayerKind.FC)
    times = [each for each in layer_times(result.trace) if layers[each.layer].kind in shown]
    names = tuple(layers[each.layer].name for each in times)
    distances = tuple(each.reuse_distance_s for each in times)
    known = [(name, distance) for name, distance in zip(names, distances, strict=True) if distance is not None]
    longest_name, longest = max(known, key=lambda item: item[1])
    conv_s = sum(each.forward_s + each.backward_s for each in times if layers[each.layer].kind is LayerKind.CONV)
    total_s = sum(each.forward_s + each.backward_s for each in layer_times(result.trace))
    alexnet = layer_times(runs.oracle("alexnet", 128).trace)[0].reuse_distance_s
    forward_s, backward_s = tuple(each.forward_s for each in times), tuple(each.backward_s for each in times)
    beside = ("forward", Tint.FORWARD, forward_s), ("backward", Tint.BACKWARD, backward_s)
    latencies, axis = (
        Slot(tuple((Series(*each),) for each in beside)),
        Axis("latency", time_scale((*forward_s, *backward_s))),
    )
    distance = Axis("reuse distance", time_scale([seconds for _, seconds in known]))
    reused = Points("reuse distance of X", distance, (distances,), joined=True)
    return SimulatedFigure(
        stem="figure06",
        columns={
            "layer": names,
            "kind": [layers[each.layer].kind.value for each in times],
            "forward_s": forward_s,
            "backward_s": backward_s,
            "reuse_distance_s": ["" if distance is None else distance for distance in distances],
        },
        chart=Chart(
            f"The X of {longest_name} lies idle for {format_seconds(longest)} of an iteration of "
            f"{format_seconds(result.metrics.iteration_s)}",
            "Fig. 6: VGG-16 (64) under base(p); CONV, POOL and FC layers, in-place ACTV layers have no X of their own",
            (Panel(names, (latencies,), axis, reused, numbered=False),),
        ),
        facts={
            "layer": longest_name,
            "idle": format_seconds(longest),
            "alexnet": alexnet and format_seconds(alexnet),
            "conv_share": conv_s / total_s,
            "backward_over_forward": sum(backward_s) / sum(forward_s),
        },
    )


def figure_13(runs: VdnnRuns) -> SimulatedFigure:
    """The most DRAM bandwidth that a kernel of each CONV layer of VGG-16 draws."""
    case = ("vgg16", 64)
    simulator = runs.simulator(*case)
    traces = runs.oracle(*case).trace, runs.result(*case, "vdnn_all(p)").trace
    alone, copied = (convolution_traffic(trace, simulator.cost_model, runs.server) for trace in traces)
    layers = list(dict.fromkeys(each.layer for each in alone))
    names = tuple(simulator.workload.graph.layers[layer].name for layer in layers)

    # The greatest share of the peak among the kernels of a layer in one direction.
    forward, backward = (
        tuple(
            max(each.kernel_utilization for each in alone if (each.layer, each.phase is Phase.FORWARD) == (layer, way))
            for layer in layers
        )
        for way in (True, False)
    )
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
            **attributes(alone, "algorithm", "seconds", "kernel_bytes", "kernel_bytes_per_s", "kernel_utilization"),
            **attributes(copied, "copy_bytes", "bytes_per_s", "utilization", prefix="all_p_"),
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
