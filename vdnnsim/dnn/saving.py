"""What forward keeps for backward: as cuDNN's calls and the vDNN paper have it, or as PyTorch's autograd does.

The rules differ in pooling. For a maximum cuDNN's call wants X and Y, autograd keeps X and an int64 for each element of
Y, which says where the maximum lay; for an average it keeps X alone. In all else they agree: convolution and matrix
product keep X, a rectifier its output, batch normalization X and the statistics, softmax its output, dropout its mask.
"""

from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import ClassVar

from vdnnsim.dnn.convolutional import Pooling
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Layer
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload


@dataclass(frozen=True, slots=True)
class IndexedPooling(Pooling):
    """A pooling as autograd saves it: X, and of a maximum where each lay, an int64 for each element of Y; no Y.

    Source: `max_pool2d_with_indices_backward` and `avg_pool2d_backward` in PyTorch's derivatives.yaml.
    """

    saves_output: ClassVar[bool] = False

    def statistics_bytes(self, x: MapShape, element_bytes: int) -> int:  # noqa: ARG002 - indices have their own type
        """The indices."""
        return 0 if self.average else 8 * self.output_shape(x).elements


class SavingRule(Enum):
    """Who says what is kept."""

    PAPER = "paper"
    AUTOGRAD = "autograd"


def saving_by(workload: Workload, rule: SavingRule) -> Workload:
    """Return a workload whose layers keep what a rule says; as built, they follow the paper's."""
    if rule is SavingRule.PAPER:
        return workload
    layers = tuple(_as_autograd(layer) for layer in workload.graph.layers)
    return replace(workload, graph=_with_layers(workload.graph, layers))


def _as_autograd(layer: Layer) -> Layer:
    pooling = layer.operator
    if type(pooling) is not Pooling:
        return layer
    options = {each.name: getattr(pooling, each.name) for each in fields(pooling)}
    return replace(layer, operator=IndexedPooling(**options))


def _with_layers(graph: LayerGraph, layers: tuple[Layer, ...]) -> LayerGraph:
    saved_for: list[list[int]] = [[] for _ in graph.maps]
    for layer in layers:
        for index in layer.saved_maps:
            saved_for[index].append(layer.index)
    maps = tuple(replace(each, saved_for=tuple(saved_for[each.index])) for each in graph.maps)
    return replace(graph, layers=layers, maps=maps)
