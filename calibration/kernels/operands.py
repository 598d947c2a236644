"""Initial content of weights, states, the input batch and labels, and the operands of one phase of a layer alone.

Every tensor is drawn from its own generator, seeded by a hash of the seed and the tensor's name, on the CPU in float32:
it does not depend on the order of drawing, on the device, or on other tensors.
"""

import hashlib
import math
from collections.abc import Callable

import torch

from calibration.kernels.interface import KernelOperands, KernelTensors
from calibration.kernels.tensors import dtype_of, shaped_view, weight_views
from vdnnsim.dnn.convolutional import BatchNormalization, Pooling
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
    """Return the operands of a phase of a layer but its workspace, which differs by algorithm.

    Maps that share a storage, as Y and X in place, are one tensor. `take` returns so many flat elements of a type, and
    `fill` gives them valid values for their role, by the number of the map or state: a state of Adam is never negative,
    and labels and indices, which have no other role, are 0.
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
    return KernelOperands.of(layer, phase, operation.operands).tensors(
        tensors.__getitem__,
        labels=filled(Role.LABELS, batch, torch.int64) if is_loss else None,
        loss=take(torch.float32, 1) if is_loss and phase is Phase.FORWARD else None,
    )


def operands_alone(
    workload: Workload, layer: Layer, phase: Phase, device_type: str, *, channels_last: bool
) -> KernelTensors:
    """Return the operands of a phase, allocated by PyTorch, with equal content in all phases of a layer."""

    def take(kind: torch.dtype, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=kind, device=device_type)

    def fill_by_role(flat: torch.Tensor, role: Role, number: int) -> None:
        if role in _MAPS.values():
            fill(flat, _SEED, f"{role.value} {number}", deviation=1.0)
        elif role is not Role.LABELS:
            fill(flat, _SEED, f"{role.value} {number}", deviation=0.1)
            flat.abs_()

    return phase_operands(workload, layer, phase, take, fill_by_role, channels_last=channels_last)


def fill_weights(layer: Layer, flat: torch.Tensor, seed: int, *, channels_last: bool) -> None:
    """Fill the flat weights of a layer: filters as He et al. (2015) for rectifiers, biases small, gamma near 1.

    A bias is not zero, so that a missing one shows. The layout changes no value.
    """
    weights, bias = weight_views(layer, flat, channels_last=channels_last)
    if isinstance(layer.operator, BatchNormalization):
        weights.copy_(_normal(weights.shape, seed, f"W {layer.name}") * 0.1 + 1)
    else:
        inputs_of_one = weights[0].numel()
        weights.copy_(_normal(weights.shape, seed, f"W {layer.name}") * math.sqrt(2 / inputs_of_one))
    if bias is not None:
        fill(bias, seed, f"bias {layer.name}", deviation=0.1)


def fill_state(layer: Layer, number: int, flat: torch.Tensor, seed: int) -> None:
    """Fill a state of the optimizer, flat: the first a mean of gradients, the second a mean of their squares."""
    fill(flat, seed, f"state {number} {layer.name}", deviation=0.01)
    if number == 1:
        flat.square_()


def fill_input(batch: torch.Tensor, seed: int) -> None:
    """Fill the input batch (N, C, H, W), standard normal as normalized images."""
    fill(batch, seed, "input", deviation=1.0)


def labels(workload: Workload, seed: int) -> torch.Tensor:
    """Return the class of each image, on the CPU, uniform over the classes."""
    classes = workload.graph.layers[-1].in_shapes[0].channels
    return torch.randint(classes, (workload.batch_size,), generator=_generator(seed, "labels"))


def fill(tensor: torch.Tensor, seed: int, name: str, *, deviation: float) -> None:
    """Fill a tensor of any layout and device with normal values of mean 0, drawn by seed and name."""
    tensor.copy_(_normal(tensor.shape, seed, name) * deviation)


def _normal(shape: torch.Size, seed: int, name: str) -> torch.Tensor:
    return torch.randn(shape, generator=_generator(seed, name))


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
