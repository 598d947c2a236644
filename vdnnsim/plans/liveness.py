"""Uses of feature maps: which maps each kernel reads and writes, and the last use of a map in forward.

Backward runs the layers in reverse order, so the last reader of a map in backward is the first layer that saved it.
"""

from dataclasses import dataclass

from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Workload


@dataclass(frozen=True, slots=True)
class MapsTouched:
    """The feature maps and gradient maps that a phase of a layer touches, by the indices of the maps."""

    maps_read: tuple[int, ...]
    maps_written: tuple[int, ...]
    gradients_read: tuple[int, ...]
    gradients_written: tuple[int, ...]


def maps_touched(workload: Workload, layer: Layer, phase: Phase) -> MapsTouched:
    """Return which maps and gradient maps a phase of a layer reads and writes."""
    step = workload.step
    operands = tuple(operand for each in step.operations_of(layer.index, phase) for operand in each.operands)
    touched = tuple(zip(operands, step.storages_of(operands), strict=True))

    def owners(kind: BufferKind, *, written: bool) -> tuple[int, ...]:
        return tuple(
            storage.owner
            for operand, storage in touched
            if storage.kind is kind and (operand.access.writes if written else operand.access.reads)
        )

    return MapsTouched(
        owners(BufferKind.FEATURE_MAP, written=False),
        owners(BufferKind.FEATURE_MAP, written=True),
        owners(BufferKind.GRADIENT_MAP, written=False),
        owners(BufferKind.GRADIENT_MAP, written=True),
    )


def last_forward_use(feature_map: FeatureMap) -> int:
    """Index of the last layer that uses a map in forward."""
    users = feature_map.consumers + feature_map.rewriters
    if users:
        return max(users)
    assert feature_map.producer is not None, "a network reads its input"
    return feature_map.producer


def needed_in_backward(workload: Workload, feature_map: FeatureMap) -> bool:
    """Whether a map must outlive forward."""
    return workload.is_training and bool(feature_map.saved_for)
