"""The two kernels that show what a device can do: a large matrix product, and a stream through its memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from calibration.devices.port import Device
from vdnnsim.units import MIB


@dataclass(frozen=True, slots=True)
class RateKernel:
    """A work whose amount is known.

    Attributes:
        amount: FLOPs of a matrix product, bytes moved through memory by a stream.
        text: what it is, for people.
    """

    work: Callable[[], None]
    amount: int
    text: str


@contextmanager
def matrix_product(device: Device, element_type: torch.dtype, side: int) -> Iterator[RateKernel]:
    """Hold a product of two square matrices.

    Raises:
        OutOfDeviceMemory: there is no room for them.
    """
    with _blocks(device, 3, side * side * element_type.itemsize) as blocks:
        a, b, product = (block.view(element_type).view(side, side) for block in blocks)

        def fill() -> None:
            a.uniform_()
            b.uniform_()

        def multiply() -> None:
            torch.mm(a, b, out=product)

        device.compute.launch(fill)
        yield RateKernel(multiply, 2 * side**3, f"product of two matrices of {side} x {side}")


@contextmanager
def memory_stream(device: Device, nbytes: int) -> Iterator[RateKernel]:
    """Hold a kernel that reads so many bytes and writes as many.

    Raises:
        OutOfDeviceMemory: there is no room for them.
    """
    with _blocks(device, 2, nbytes) as blocks:
        source, target = (block.view(torch.float32) for block in blocks)

        def fill() -> None:
            source.uniform_()

        def double() -> None:
            torch.mul(source, 2.0, out=target)

        device.compute.launch(fill)
        yield RateKernel(double, 2 * nbytes, f"doubling {nbytes // MIB} MiB from one place into another")


@contextmanager
def _blocks(device: Device, count: int, nbytes: int) -> Iterator[list[torch.Tensor]]:
    held: list[torch.Tensor] = []
    try:
        held.extend(device.allocate(nbytes) for _ in range(count))
        yield held
    finally:
        device.synchronize([device.compute])
        for block in held:
            device.release(block)
        held.clear()
