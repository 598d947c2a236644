"""Rates of a device: arithmetic by a large matrix product, memory bandwidth by a streaming kernel."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from calibration.devices.interface import Device
from calibration.kernels.tensors import dtype_of
from calibration.measure.session import Session
from calibration.measure.statistics import Sample
from calibration.measure.timing import Extent, time_work, warm_up
from vdnnsim.units import MIB, ElementType

RATE_STEPS = 2


@dataclass(frozen=True, slots=True)
class RateKernel:
    """A kernel of known work; `amount` is FLOPs of a matrix product, bytes read and written by a stream."""

    work: Callable[[], None]
    amount: int
    text: str


@contextmanager
def matrix_product(device: Device, element_type: torch.dtype, side: int) -> Iterator[RateKernel]:
    """Hold a product of two square matrices, or raise OutOfDeviceMemory where there is no room for them."""
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
    """Hold a kernel that reads `nbytes` and writes as many."""
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


@dataclass(frozen=True, slots=True)
class Rate:
    """A timed kernel of known work: FLOPs, or bytes."""

    sample: Sample
    amount: int
    text: str

    @classmethod
    def measured(cls, device: Device, session: Session, extent: Extent, name: str, kernel: RateKernel) -> "Rate":
        """Time a kernel."""
        sample = session.sample(name, lambda: time_work(device, device.compute, kernel.work, extent.copies))
        return cls(sample, kernel.amount, kernel.text)


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """Arithmetic by a product in an element type, and device memory by a stream through it."""

    element_type: ElementType
    product: Rate
    stream: Rate


def warm_up_compute(device: Device, session: Session, extent: Extent, element_type: ElementType) -> None:
    """Raise a device's clocks by matrix products; warn where their times never settle."""
    with matrix_product(device, dtype_of(element_type), extent.product_side) as product:
        remark = warm_up(device, device.compute, product.work, extent.warm_up)
    session.remark("warming up by matrix products", remark)


def measure_rates(device: Device, session: Session, extent: Extent, element_type: ElementType) -> DeviceRates:
    """Measure both kernels on an idle device that has warmed up."""
    with matrix_product(device, dtype_of(element_type), extent.product_side) as kernel:
        product = Rate.measured(device, session, extent, f"matrix product in {element_type.value}", kernel)
    with memory_stream(device, extent.stream_bytes) as kernel:
        stream = Rate.measured(device, session, extent, "stream through device memory", kernel)
    return DeviceRates(element_type, product, stream)
