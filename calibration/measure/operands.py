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

from calibration.devices.interface import Device
from calibration.kernels.interface import KernelTensors
from calibration.kernels.operands import phase_operands
from calibration.measure.subjects import Subject
from vdnnsim.dnn.step import Role

_MOST_COPIES: Final = 64
"""More are not made: what is smaller than a 64th of two caches, 1.6 MB of an H100, is read from its memory in half a
microsecond, a fraction of what any kernel takes to start."""


@contextmanager
def kernel_operands(
    device: Device, subject: Subject, *, channels_last: bool, cache_bytes: int = 0
) -> Iterator[tuple[KernelTensors, ...]]:
    """Hold the operands of a subject in device memory; the workspace is left out, for it differs by algorithm.

    There is a single copy of them unless there is a cache, in which runs are to find nothing of each other's.

    Raises:
        OutOfDeviceMemory: there is no room for them.
    """
    blocks: list[torch.Tensor] = []

    def take(kind: torch.dtype, count: int) -> torch.Tensor:
        blocks.append(device.allocate(count * kind.itemsize))
        return blocks[-1].view(kind)

    def fill(flat: torch.Tensor, role: Role, _: int) -> None:
        def work() -> None:
            flat.zero_() if role is Role.LABELS else flat.uniform_()

        device.compute.launch(work)

    def operands() -> KernelTensors:
        return phase_operands(subject.workload, subject.layer, subject.phase, take, fill, channels_last=channels_last)

    try:
        copies = [operands()]
        wanted = math.ceil(2 * cache_bytes / sum(block.nbytes for block in blocks))
        copies += [operands() for _ in range(1, min(wanted, _MOST_COPIES))]
        yield tuple(copies)
        copies.clear()
    finally:
        device.synchronize([device.compute])
        while blocks:
            device.release(blocks.pop())
