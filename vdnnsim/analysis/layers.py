"""Layer by layer: how long each takes, how long its X lies idle, what it needs by itself (vDNN paper, Fig. 1, 5 and 6).

The reuse distance of a layer's X is the time from the end of its forward to the start of its backward (Fig. 6). What a
layer needs by itself is what its kernels touch: X, Y, W and workspace in forward; in backward the maps that it saved,
dX, dY, W, dW and the larger of its two workspaces; statistics, where it has them, in both. A layer in place has one
map, which counts as Y.
"""

from collections import defaultdict
from dataclasses import astuple, dataclass

from vdnnsim.cost.table import KernelChoice
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.trace import IterationTrace, Span


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """When a layer ran; times in seconds.

    Attributes:
        layer: its index.
        forward_s, backward_s: time in its kernels, stalls between them aside.
        reuse_distance_s: from the end of forward to the start of backward; None where backward has no kernel.
    """

    layer: int
    forward_s: float
    backward_s: float
    reuse_distance_s: float | None


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Bytes of device memory that one layer needs by itself; what a phase does not touch is zero."""

    x: int = 0
    y: int = 0
    dx: int = 0
    dy: int = 0
    weights: int = 0
    weight_gradient: int = 0
    workspace: int = 0
    statistics: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return sum(astuple(self))


def layer_times(trace: IterationTrace) -> tuple[LayerTimes, ...]:
    """Return the times of each layer that ran, in the order of forward."""
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


def forward_bytes(workload: Workload, kernels: KernelChoice, layer: Layer) -> LayerBytes:
    """Return what forward of a layer touches."""
    return LayerBytes(
        x=0 if layer.in_place else sum(workload.map_bytes(index) for index in layer.inputs),
        y=workload.map_bytes(layer.output),
        weights=workload.weight_bytes(layer),
        workspace=kernels[layer.index, Phase.FORWARD].workspace_bytes,
        statistics=workload.statistics_bytes(layer),
    )


def backward_bytes(workload: Workload, kernels: KernelChoice, layer: Layer) -> LayerBytes:
    """Return what backward of a layer touches, both of its halves together; nothing where it has no kernel."""
    phases = layer.backward_phases
    if not phases:
        return LayerBytes()
    maps = workload.graph.maps
    own_x = () if layer.in_place else layer.inputs
    return LayerBytes(
        x=sum(workload.map_bytes(index) for index in own_x if index in layer.saved_maps),
        y=workload.map_bytes(layer.output) if layer.output in layer.saved_maps else 0,
        dx=sum(workload.map_bytes(index) for index in own_x if maps[index].needs_gradient),
        dy=workload.map_bytes(layer.output) if maps[layer.output].needs_gradient else 0,
        weights=workload.weight_bytes(layer),
        weight_gradient=workload.weight_bytes(layer),
        workspace=max(kernels[layer.index, phase].workspace_bytes for phase in phases),
        statistics=workload.statistics_bytes(layer),
    )


def training_bytes(workload: Workload, kernels: KernelChoice, layer: Layer) -> LayerBytes:
    """Return what a layer needs for an iteration: each of its buffers once, the larger workspace."""
    forward, backward = forward_bytes(workload, kernels, layer), backward_bytes(workload, kernels, layer)
    return LayerBytes(*(max(pair) for pair in zip(astuple(forward), astuple(backward), strict=True)))


def largest_layer(workload: Workload, kernels: KernelChoice) -> tuple[Layer, LayerBytes]:
    """Return the layer that needs the most memory by itself, the first of equals, with what it needs (Fig. 1)."""
    needs = [(layer, training_bytes(workload, kernels, layer)) for layer in workload.graph.layers]
    return max(needs, key=lambda item: item[1].total)
