"""Operands of a phase of a layer by feature maps, as tests write them by hand."""

from dataclasses import dataclass

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import BufferKind, Operand, Role, StepOperation
from vdnnsim.dnn.workload import Workload

_KINDS = {
    Role.INPUT: BufferKind.FEATURE_MAP,
    Role.OUTPUT: BufferKind.FEATURE_MAP,
    Role.INPUT_GRADIENT: BufferKind.GRADIENT_MAP,
    Role.OUTPUT_GRADIENT: BufferKind.GRADIENT_MAP,
    Role.WEIGHTS: BufferKind.WEIGHTS,
    Role.WEIGHT_GRADIENT: BufferKind.WEIGHT_GRADIENT,
    Role.STATE: BufferKind.OPTIMIZER_STATE,
    Role.STATISTICS: BufferKind.STATISTICS,
}


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands of a phase as indices of feature maps; gradient maps have the index of their map."""

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
    """Return the operands of a phase of a layer; each must have the kind and the owner of its role."""
    step = workload.step
    found = step.operation(layer.index, phase).operands
    touched = list(zip(found, step.storages_of(found), strict=True))
    owners = {
        Role.INPUT: layer.inputs,
        Role.INPUT_GRADIENT: layer.inputs,
        Role.OUTPUT: layer.outputs,
        Role.OUTPUT_GRADIENT: layer.outputs,
        Role.STATISTICS: (layer.index,),
    }
    for operand, storage in touched:
        assert storage.kind is _KINDS[operand.role]
        if operand.role in owners:
            assert storage.owner == owners[operand.role][operand.position]
        else:
            assert storage.owner == layer.weights_of

    def of(kind: BufferKind, *, written: bool) -> tuple[int, ...]:
        return tuple(
            storage.owner
            for operand, storage in touched
            if storage.kind is kind and (operand.access.writes if written else operand.access.reads)
        )

    return Operands(
        maps_read=of(BufferKind.FEATURE_MAP, written=False),
        maps_written=of(BufferKind.FEATURE_MAP, written=True),
        gradients_read=of(BufferKind.GRADIENT_MAP, written=False),
        gradients_written=of(BufferKind.GRADIENT_MAP, written=True),
        weights_read=bool(of(BufferKind.WEIGHTS, written=False)),
        weights_written=bool(of(BufferKind.WEIGHTS, written=True)),
        weight_gradient_read=bool(of(BufferKind.WEIGHT_GRADIENT, written=False)),
        weight_gradient_written=bool(of(BufferKind.WEIGHT_GRADIENT, written=True)),
        statistics_read=bool(of(BufferKind.STATISTICS, written=False)),
        statistics_written=bool(of(BufferKind.STATISTICS, written=True)),
    )


def of_role(operation: StepOperation, *roles: Role) -> tuple[Operand, ...]:
    return tuple(each for each in operation.operands if each.role in roles)
