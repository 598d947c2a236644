"""Operands of one phase of one layer alone, in fresh memory: to run a kernel outside of any network."""

from collections.abc import Callable

import torch

from calibration.kernels.initial import fill as fill_normal
from calibration.kernels.port import KernelTensors
from calibration.kernels.tensors import dtype_of, shaped_view
from vdnnsim.dnn.convolutional import Pooling
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import Access, BufferKind, Role, Storage
from vdnnsim.dnn.workload import Workload

_SEED = 0
_MAPS = {BufferKind.FEATURE_MAP: Role.INPUT, BufferKind.GRADIENT_MAP: Role.INPUT_GRADIENT}


def phase_operands(
    workload: Workload,
    layer: Layer,
    phase: Phase,
    take: Callable[[torch.dtype, int], torch.Tensor],
    fill: Callable[[torch.Tensor, Role, int], object],
    *,
    channels_last: bool,
) -> KernelTensors:
    """Return everything that a phase of a layer touches but its workspace, which differs by algorithm.

    Maps that share a storage, as Y and X in place, are one tensor. `take` returns so many flat elements of a type, and
    `fill` gives them values that one in this role may have, by the number of its map or state: a state of Adam is never
    negative, and labels and indices, which have no other role, are 0.
    """
    step, operation = workload.step, workload.step.operation(layer.index, phase)
    dtype = dtype_of(workload.element_type)

    def filled(role: Role, count: int, kind: torch.dtype = dtype, number: int = 0) -> torch.Tensor:
        flat = take(kind, count)
        fill(flat, role, number)
        return flat

    def held_map(storage: Storage) -> torch.Tensor:
        shape, batch = workload.graph.maps[storage.owner].shape, workload.batch_size
        elements = filled(_MAPS[storage.kind], shape.elements * batch, number=storage.owner)
        return shaped_view(elements, (batch, shape.channels, shape.height, shape.width), channels_last=channels_last)

    def weights(role: Role) -> torch.Tensor | None:
        return filled(role, layer.parameters) if operation.of_role(role) else None

    def statistics() -> torch.Tensor:
        count = workload.statistics_bytes(layer) // torch.float32.itemsize
        return filled(Role.LABELS if isinstance(layer.operator, Pooling) else Role.STATISTICS, count, torch.float32)

    storages = step.storages_of(operation.operands)
    held = {each: held_map(each) for each in dict.fromkeys(storages) if each.kind in _MAPS}
    touched = zip(operation.operands, storages, strict=True)
    maps = {(operand.role, operand.position): held[each] for operand, each in touched if each in held}
    gradients = {each.position: each for each in operation.of_role(Role.INPUT_GRADIENT)}
    positions = range(len(layer.inputs)) if phase.is_backward else ()
    is_loss = layer.operator.is_loss
    return KernelTensors(
        inputs=tuple(maps[Role.INPUT, each.position] for each in operation.of_role(Role.INPUT)),
        output=maps.get((Role.OUTPUT, 0)),
        input_gradients=tuple(maps.get((Role.INPUT_GRADIENT, at)) for at in positions),
        accumulates=tuple(at in gradients and gradients[at].access is Access.UPDATE for at in positions),
        output_gradient=maps.get((Role.OUTPUT_GRADIENT, 0)),
        weights=weights(Role.WEIGHTS),
        weight_gradient=weights(Role.WEIGHT_GRADIENT),
        states=tuple(
            filled(Role.STATE, layer.parameters, number=each.position) for each in operation.of_role(Role.STATE)
        ),
        statistics=statistics() if operation.of_role(Role.STATISTICS) else None,
        labels=filled(Role.LABELS, workload.batch_size, torch.int64) if is_loss else None,
        loss=take(torch.float32, 1) if is_loss and phase is Phase.FORWARD else None,
    )


def operands_alone(
    workload: Workload, layer: Layer, phase: Phase, device_type: str, *, channels_last: bool
) -> KernelTensors:
    """Return the operands of a phase in memory of PyTorch's, the same for all phases of a layer; labels are zero."""

    def take(kind: torch.dtype, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=kind, device=device_type)

    def fill(flat: torch.Tensor, role: Role, number: int) -> None:
        if role in _MAPS.values():
            fill_normal(flat, _SEED, f"{role.value} {number}", deviation=1.0)
        elif role is not Role.LABELS:
            fill_normal(flat, _SEED, f"{role.value} {number}", deviation=0.1)
            flat.abs_()

    return phase_operands(workload, layer, phase, take, fill, channels_last=channels_last)
