"""Operands to time a kernel on: what it would read and write in an iteration, filled with random numbers.

An iteration comes back to a buffer after it has touched all others, and its kernels find little of it in the cache. A
kernel that is timed again and again on the same operands finds all of them there, if they are small: by the datasheets
of an H100, 50 MB of them at several times the rate of its memory. So there are as many copies of the operands as fill
the cache twice, and runs take them in turn; twice, for no cache throws out what is oldest without exception.

Random, for kernels take other time on zeros: a GPU draws less power for them and clocks higher, and a CPU slows down on
the tiny numbers that a repeated update of zeros may leave.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from calibration.devices.port import Device
from calibration.kernels.port import KernelTensors
from calibration.kernels.tensors import dtype_of, map_view
from calibration.measure.subjects import Subject
from vdnnsim.dnn.convolutional import Pooling
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, BufferKind, Role, StepOperation

_MOST_COPIES: Final = 64
"""More are not made: what is smaller than a 64th of two caches, 1.6 MB of an H100, is read from its memory in half a
microsecond, a fraction of what any kernel takes to start."""


@contextmanager
def kernel_operands(
    device: Device, subject: Subject, *, channels_last: bool, cache_bytes: int = 0
) -> Iterator[tuple[KernelTensors, ...]]:
    """Hold the operands of a subject in device memory; the workspace is left out, for it differs by algorithm.

    Args:
        device: where.
        subject: whose.
        channels_last: in which layout.
        cache_bytes: of the cache in which runs are to find nothing of each other's; 0 for a single copy.

    Raises:
        OutOfDeviceMemory: there is no room for them.
    """
    memory = _Memory(device, subject, channels_last=channels_last)
    try:
        copies = [memory.tensors()]
        wanted = math.ceil(2 * cache_bytes / memory.nbytes)
        while len(copies) < min(wanted, _MOST_COPIES):
            copies.append(memory.tensors())
        yield tuple(copies)
        copies.clear()
    finally:
        memory.release()


class _Memory:
    def __init__(self, device: Device, subject: Subject, *, channels_last: bool) -> None:
        self._device, self._subject, self._channels_last = device, subject, channels_last
        self._type = dtype_of(subject.workload.element_type)
        self._blocks: list[torch.Tensor] = []

    def tensors(self) -> KernelTensors:
        workload, layer, phase = self._subject.workload, self._subject.layer, self._subject.phase
        operation = workload.step.operation(layer.index, phase)
        touched = {each.role for each in operation.operands}
        maps = self._maps(operation)
        gradients = {each.position: each for each in operation.of_role(Role.INPUT_GRADIENT)}
        is_loss = layer.operator.is_loss
        states = len(operation.of_role(Role.STATE))
        return KernelTensors(
            inputs=tuple(maps[Role.INPUT, each.position] for each in operation.of_role(Role.INPUT)),
            output=maps.get((Role.OUTPUT, 0)),
            input_gradients=tuple(maps.get((Role.INPUT_GRADIENT, at)) for at in range(len(layer.inputs)))
            if gradients
            else (),
            accumulates=tuple(
                at in gradients and gradients[at].access is Access.UPDATE for at in range(len(layer.inputs))
            )
            if gradients
            else (),
            output_gradient=maps.get((Role.OUTPUT_GRADIENT, 0)),
            weights=self._numbers(self._type, layer.parameters) if Role.WEIGHTS in touched else None,
            weight_gradient=self._numbers(self._type, layer.parameters) if Role.WEIGHT_GRADIENT in touched else None,
            states=tuple(self._numbers(self._type, layer.parameters) for _ in range(states)),
            statistics=self._statistics() if Role.STATISTICS in touched else None,
            labels=self._labels() if is_loss else None,
            loss=self._take(torch.float32, 1) if is_loss and phase is Phase.FORWARD else None,
        )

    @property
    def nbytes(self) -> int:
        """Of all that is held."""
        return sum(block.nbytes for block in self._blocks)

    def release(self) -> None:
        self._device.synchronize([self._device.compute])
        while self._blocks:
            self._device.release(self._blocks.pop())

    def _maps(self, operation: StepOperation) -> dict[tuple[Role, int], torch.Tensor]:
        """Return the maps by role and position; those that share a storage, as Y and X in place, are one tensor."""
        storages = self._subject.workload.step.storages_of(operation.operands)
        held = {
            each: self._map(each.owner)
            for each in dict.fromkeys(storages)
            if each.kind in (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP)
        }
        touched = zip(operation.operands, storages, strict=True)
        return {(operand.role, operand.position): held[each] for operand, each in touched if each in held}

    def _map(self, index: int) -> torch.Tensor:
        shape, batch = self._subject.workload.graph.maps[index].shape, self._subject.workload.batch_size
        elements = self._numbers(self._type, shape.elements * batch)
        return map_view(elements.view(torch.uint8), shape, batch, self._type, channels_last=self._channels_last)

    def _numbers(self, element_type: torch.dtype, count: int) -> torch.Tensor:
        """Return numbers from 0 to 1: which they are does not matter, but a state of Adam is never negative."""
        tensor = self._take(element_type, count)

        def fill() -> None:
            tensor.uniform_()

        self._device.compute.launch(fill)
        return tensor

    def _labels(self) -> torch.Tensor:
        tensor = self._take(torch.int64, self._subject.workload.batch_size)

        def fill() -> None:
            tensor.random_(self._subject.layer.in_shapes[0].elements)

        self._device.compute.launch(fill)
        return tensor

    def _statistics(self) -> torch.Tensor:
        """Return what backward reads beside maps; all indices are that of the first element, which is a valid one."""
        workload, layer = self._subject.workload, self._subject.layer
        count = workload.statistics_bytes(layer) // torch.float32.itemsize
        if not isinstance(layer.operator, Pooling):
            return self._numbers(torch.float32, count)
        tensor = self._take(torch.float32, count)

        def clear() -> None:
            tensor.zero_()

        self._device.compute.launch(clear)
        return tensor

    def _take(self, element_type: torch.dtype, count: int) -> torch.Tensor:
        block = self._device.allocate(count * element_type.itemsize)
        self._blocks.append(block)
        return block.view(element_type)
