"""Lifetimes: which buffers each kernel touches, and after which kernel a map is needed no more.

Backward runs the layers in reverse order, so the last reader of a map in backward is the first layer that saved it.
"""

from dataclasses import dataclass

from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.workload import Mode, Workload


@dataclass(frozen=True, slots=True)
class Operands:
    """What a phase of a layer touches, as indices of feature maps; gradient maps go by the index of their map.

    Attributes:
        weights_read, weights_written: whether W is; weight_gradient_read, weight_gradient_written: whether dW is;
            statistics_read, statistics_written: whether the statistics are that forward keeps for backward beside maps.
    """

    maps_read: tuple[int, ...] = ()
    maps_written: tuple[int, ...] = ()
    gradients_read: tuple[int, ...] = ()
    gradients_written: tuple[int, ...] = ()
    weights_read: bool = False
    weights_written: bool = False
    weight_gradient_read: bool = False
    weight_gradient_written: bool = False
    statistics_read: bool = False
    statistics_written: bool = False


def operands(workload: Workload, layer: Layer, phase: Phase) -> Operands:
    """Return what a phase of a layer reads and writes, the workspace aside.

    Statistics are written by forward for backward; those of a batch normalization, in inference, which has no batch to
    speak of, are what training left, and forward reads them.
    """
    has_weights = layer.weights_of is not None
    has_statistics = workload.statistics_bytes(layer) > 0
    incoming = () if layer.kind is LayerKind.LOSS else (layer.output,)
    outgoing = tuple(x for x in layer.inputs if workload.graph.maps[x].needs_gradient)
    added_to = tuple(x for x in outgoing if workload.accumulates(layer, x))
    match phase:
        case Phase.FORWARD:
            training = workload.mode is Mode.TRAINING
            return Operands(
                maps_read=layer.inputs,
                maps_written=(layer.output,),
                weights_read=has_weights,
                statistics_read=has_statistics and not training,
                statistics_written=has_statistics and training,
            )
        case Phase.BACKWARD_DATA:
            return Operands(
                maps_read=() if has_weights else layer.saved_maps,
                gradients_read=incoming + added_to,
                gradients_written=outgoing,
                weights_read=has_weights,
                statistics_read=has_statistics,
            )
        case Phase.BACKWARD_WEIGHTS:
            return Operands(
                maps_read=layer.inputs,
                gradients_read=incoming,
                weight_gradient_read=layer.shares_weights,
                weight_gradient_written=True,
            )
        case Phase.BACKWARD:
            return Operands(
                maps_read=layer.saved_maps,
                gradients_read=incoming + added_to,
                gradients_written=outgoing,
                weights_read=has_weights,
                weight_gradient_written=has_weights,
                statistics_read=has_statistics,
            )
        case Phase.UPDATE:  # pragma: no branch
            return Operands(weights_read=True, weights_written=True, weight_gradient_read=True)


def last_forward_use(feature_map: FeatureMap) -> int:
    """Index of the last layer that touches a map in forward; its producer where no layer reads it."""
    users = feature_map.consumers + feature_map.rewriters
    if users:
        return max(users)
    assert feature_map.producer is not None, "a network reads its input"
    return feature_map.producer


def needed_in_backward(workload: Workload, feature_map: FeatureMap) -> bool:
    """Whether a map must outlive forward."""
    return workload.mode is Mode.TRAINING and bool(feature_map.saved_for)


def last_backward_use(feature_map: FeatureMap) -> int:
    """Index of the last layer, in the order of backward, that reads a saved map."""
    return min(feature_map.saved_for)
