"""Memory of each layer (vDNN paper, Fig. 1 and 5).

It is what its kernels touch: X, Y, W and workspace in forward; saved maps, dX, dY, W, dW and the larger
workspace in backward; statistics in both. The one map of an in-place layer counts as Y.
"""

from dataclasses import astuple, dataclass

from vdnnsim.cost.table import KernelChoice
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Bytes of device memory of one layer; 0 for what a phase does not touch."""

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
        return sum(astuple(self))


def forward_bytes(workload: Workload, kernels: KernelChoice, layer: Layer) -> LayerBytes:
    return LayerBytes(
        x=0 if layer.in_place else sum(workload.map_bytes(index) for index in layer.inputs),
        y=workload.map_bytes(layer.output),
        weights=workload.weight_bytes(layer),
        workspace=kernels[layer.index, Phase.FORWARD].workspace_bytes,
        statistics=workload.statistics_bytes(layer),
    )


def backward_bytes(workload: Workload, kernels: KernelChoice, layer: Layer) -> LayerBytes:
    """Return the memory of backward of a layer; zeros where it has no kernel."""
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
    """Return the memory of a layer in an iteration: each buffer once, the larger workspace."""
    forward, backward = forward_bytes(workload, kernels, layer), backward_bytes(workload, kernels, layer)
    return LayerBytes(*(max(pair) for pair in zip(astuple(forward), astuple(backward), strict=True)))


def largest_layer(workload: Workload, kernels: KernelChoice) -> tuple[Layer, LayerBytes]:
    """Return the first layer with the most memory, and its memory (Fig. 1)."""
    needs = [(layer, training_bytes(workload, kernels, layer)) for layer in workload.graph.layers]
    return max(needs, key=lambda item: item[1].total)
