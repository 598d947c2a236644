"""Figures 5 and 6: VGG-16 layer by layer, its memory, its time and how long its X lies idle."""

from vdnnsim.analysis.layers import forward_bytes, layer_times
from vdnnsim.claims.vdnn2016.figures.figure import PaperFigure, bytes_axis
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.dnn.layers import LayerKind, Stage
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.report.chart import Axis, Chart, Panel, Points, Series, Slot, Tint
from vdnnsim.report.scale import time_scale
from vdnnsim.units import format_bytes, format_seconds


def figure_05(runs: VdnnRuns) -> PaperFigure:
    """What each layer of VGG-16 (256) needs in forward."""
    simulator = runs.simulator("vgg16", 256)
    kernels = choose_kernels(simulator.workload, simulator.costs, Algorithms.PERFORMANCE_OPTIMAL)
    layers = [layer for layer in simulator.workload.graph.layers if layer.parameters]
    needs = [forward_bytes(simulator.workload, kernels, layer) for layer in layers]
    names = tuple(layer.name for layer in layers)
    left = [need.x + need.y + need.workspace for need in needs]
    whole = runs.oracle("vgg16", 256).metrics.max_memory_bytes
    most = left.index(max(left))
    weights = [need.weights for need in needs]
    in_classifier = sum(n.weights for n, layer in zip(needs, layers, strict=True) if layer.stage is Stage.CLASSIFIER)
    ratios = [a / b for a, b, layer in zip(left, weights, layers, strict=True) if layer.stage is Stage.FEATURES]
    return PaperFigure(
        stem="figure05",
        header=(
            "layer",
            "stage",
            "algorithm",
            "x_bytes",
            "y_bytes",
            "workspace_bytes",
            "weights_bytes",
        ),
        rows=tuple(
            (
                layer.name,
                layer.stage.value,
                kernels[layer.index, layer.training_phases[0]].algorithm,
                need.x,
                need.y,
                need.workspace,
                need.weights,
            )
            for layer, need in zip(layers, needs, strict=True)
        ),
        chart=Chart(
            f"One layer of VGG-16 (256) needs at most {format_bytes(left[most])} of the {format_bytes(whole)} "
            "allocated",
            "Fig. 5: per-layer memory in forward under the fastest algorithms, layers that have weights",
            (
                Panel(
                    names,
                    (
                        Slot(
                            "",
                            (
                                (
                                    Series("X and Y", Tint.FEATURE_MAPS, tuple(float(n.x + n.y) for n in needs)),
                                    Series("workspace", Tint.WORKSPACE, tuple(float(n.workspace) for n in needs)),
                                ),
                            ),
                            tuple(False for _ in names),
                        ),
                    ),
                    bytes_axis("feature maps and workspace", left),
                    Points("weights", bytes_axis("weights", weights), (tuple(map(float, weights)),), joined=False),
                    numbered=False,
                ),
            ),
        ),
        facts={
            "layer": names[most],
            "need": format_bytes(left[most]),
            "share": left[most] / whole,
            "whole": format_bytes(whole),
            "times_weights": min(ratios),
            "in_classifier": in_classifier / sum(weights),
            "with_workspace": sum(need.workspace > 0 for need in needs),
            "layers": len(layers),
            "workspace": format_bytes(max(need.workspace for need in needs)),
        },
    )


def figure_06(runs: VdnnRuns) -> PaperFigure:
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
    forward_s, backward_s = (sum(each.forward_s for each in times), sum(each.backward_s for each in times))
    latencies = [value for each in times for value in (each.forward_s, each.backward_s)]
    return PaperFigure(
        stem="figure06",
        header=("layer", "kind", "forward_s", "backward_s", "reuse_distance_s"),
        rows=tuple(
            (
                name,
                layers[each.layer].kind.value,
                each.forward_s,
                each.backward_s,
                "" if each.reuse_distance_s is None else each.reuse_distance_s,
            )
            for name, each in zip(names, times, strict=True)
        ),
        chart=Chart(
            f"The X of {longest_name} lies idle for {format_seconds(longest)} of an iteration of "
            f"{format_seconds(result.metrics.iteration_s)}",
            "Fig. 6: VGG-16 (64) under base(p); CONV, POOL and FC layers, in-place ACTV layers have no X of their own",
            (
                Panel(
                    names,
                    (
                        Slot(
                            "",
                            (
                                (Series("forward", Tint.FORWARD, tuple(each.forward_s for each in times)),),
                                (Series("backward", Tint.BACKWARD, tuple(each.backward_s for each in times)),),
                            ),
                            tuple(False for _ in names),
                        ),
                    ),
                    Axis("latency", time_scale(latencies)),
                    Points(
                        "reuse distance of X",
                        Axis("reuse distance", time_scale([distance for _, distance in known])),
                        (distances,),
                        joined=True,
                    ),
                    numbered=False,
                ),
            ),
        ),
        facts={
            "layer": longest_name,
            "idle": format_seconds(longest),
            "alexnet": alexnet and format_seconds(alexnet),
            "conv_share": conv_s / total_s,
            "backward_over_forward": backward_s / forward_s,
        },
    )
