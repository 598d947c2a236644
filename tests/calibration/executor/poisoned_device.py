"""A device that fills memory with values that are no numbers, when it is taken and before it is given back."""

from collections.abc import Callable, Sequence
from functools import partial
from time import sleep

import torch

from calibration.devices.interface import Device, DeviceStream, Interval, Mark, ReleasesExtents
from vdnnsim.plans.trace import MemoryCount

_POISON = 0xFF
"""A byte of which any floating point number is made up is not a number."""


class LateStream:
    """A stream whose work begins late."""

    def __init__(self, stream: DeviceStream, late_s: float, delay: Callable[[float], None]) -> None:
        self.stream = stream
        self._late_s = late_s
        self._delay = delay

    def launch(self, work: Callable[[], None], *, lasts_s: float | None = None) -> Interval:
        def late_work() -> None:
            self._delay(self._late_s)
            work()

        return self.stream.launch(late_work if self._late_s else work, lasts_s=lasts_s)

    def mark(self) -> Mark:
        return self.stream.mark()

    def wait(self, mark: Mark) -> None:
        self.stream.wait(mark)


class PoisonedDevice:
    """Passes everything on to a device; copies and kernels may be late, so that what is not ordered goes wrong."""

    def __init__(self, device: Device, *, copies_late_s: float = 0.0, kernels_late_s: float = 0.0) -> None:
        self._device = device
        self.name = device.name
        self.torch_device = device.torch_device
        self.memory_bytes = device.memory_bytes
        self.granule_bytes = device.granule_bytes
        self.cache_bytes = device.cache_bytes
        delay = sleep if device.torch_device.type == "cpu" else _spin
        self.compute = LateStream(device.compute, kernels_late_s, delay)
        self.memory = LateStream(device.memory, copies_late_s, delay)

    def new_stream(self) -> DeviceStream:
        return self._device.new_stream()

    def allocate(self, nbytes: int) -> torch.Tensor:
        tensor = self._device.allocate(nbytes)
        self._device.compute.launch(partial(_poison, tensor))
        return tensor

    def release(self, tensor: torch.Tensor) -> None:
        self._device.compute.launch(partial(_poison, tensor))
        self._device.release(tensor)

    def release_extent(self, extent: torch.Tensor) -> None:
        self._device.compute.launch(partial(_poison, extent))
        assert isinstance(self._device, ReleasesExtents)
        self._device.release_extent(extent)

    def allocate_extent(self, extent: torch.Tensor) -> None:
        assert isinstance(self._device, ReleasesExtents)
        self._device.allocate_extent(extent)
        self._device.compute.launch(partial(_poison, extent))

    def count_internal_allocation(self, nbytes: int) -> None:
        self._device.count_internal_allocation(nbytes)

    def pin(self, nbytes: int) -> torch.Tensor:
        return self._device.pin(nbytes).fill_(_POISON)

    def unpin(self, tensor: torch.Tensor) -> None:
        self._device.unpin(tensor)

    def empty_cache(self) -> None:
        self._device.empty_cache()

    def begin(self) -> None:
        self._device.begin()

    def now_s(self) -> float:
        return self._device.now_s()

    def synchronize(self, streams: Sequence[DeviceStream]) -> None:
        self._device.synchronize([each.stream if isinstance(each, LateStream) else each for each in streams])

    def peaks(self) -> MemoryCount:
        return self._device.peaks()

    def context_bytes(self) -> int | None:
        return self._device.context_bytes()

    def in_use(self) -> MemoryCount:
        return self._device.in_use()

    def close(self) -> None:
        self._device.close()


def _poison(tensor: torch.Tensor) -> None:
    tensor.fill_(_POISON)


def _spin(seconds: float) -> None:
    """Keep a stream of a GPU busy, at clocks of at most 2 GHz."""
    torch.cuda._sleep(round(seconds * 2e9))  # type: ignore[no-untyped-call]  # noqa: SLF001  # as PyTorch's own tests
