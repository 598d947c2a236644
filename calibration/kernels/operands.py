"""Operands of one phase of one layer alone, in fresh memory: to run a kernel outside of any network."""

from collections.abc import Callable
from dataclasses import replace

import torch

from calibration.kernels.initial import fill as fill_normal
from calibration.kernels.interface import KernelTensors
from calibration.kernels.tensors import dtype_of, shaped_view
from vdnnsim.dnn.convolutional import Pooling
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import BufferKind, Operand, Role, Storage
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
    dtype, batch = dtype_of(workload.element_type), workload.batch_size

    def filled(role: Role, count: int, kind: torch.dtype = dtype, number: int = 0) -> torch.Tensor:
        flat = take(kind, count)
        fill(flat, role, number)
        return flat

    def held(operand: Operand, storage: Storage) -> torch.Tensor:
        if role := _MAPS.get(storage.kind):
            shape = workload.graph.maps[storage.owner].shape
            elements = filled(role, shape.elements * batch, number=storage.owner)
            whole = (batch, shape.channels, shape.height, shape.width)
            return shaped_view(elements, whole, channels_last=channels_last)
        if storage.kind is BufferKind.STATISTICS:
            role = Role.LABELS if isinstance(layer.operator, Pooling) else Role.STATISTICS
            return filled(role, workload.statistics_bytes(layer) // torch.float32.itemsize, torch.float32)
        return filled(operand.role, layer.parameters, number=operand.position)

    tensors: dict[int, torch.Tensor] = {}
    for operand, storage in zip(operation.operands, step.storages_of(operation.operands), strict=True):
        if operand.memory not in tensors and storage.kind is not BufferKind.LABELS:
            tensors[operand.memory] = held(operand, storage)
    is_loss = layer.operator.is_loss
    return replace(
        KernelTensors.of(layer, phase, operation.operands, tensors.__getitem__),
        labels=filled(Role.LABELS, batch, torch.int64) if is_loss else None,
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
