"""A device that fills memory with NaN when it is allocated and before it is freed."""

from collections.abc import Callable, Sequence
from functools import partial
from time import sleep
from typing import Any, cast

import torch

from calibration.devices.interface import Device, DeviceStream, Interval, Mark, OutOfDeviceMemory, ReleasesExtents

_POISON = 0xFF
"""Any floating-point number of such bytes is NaN."""


class LateStream:
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


class _PoisonedDevice:
    """All else is the device's own."""

    def __init__(self, device: Device, copies_late_s: float = 0.0, kernels_late_s: float = 0.0) -> None:
        self._device = device
        delay = sleep if device.torch_device.type == "cpu" else _spin
        self.compute = LateStream(device.compute, kernels_late_s, delay)
        self.memory = LateStream(device.memory, copies_late_s, delay)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.endswith("_extent"):
            raise AttributeError(name)
        return getattr(self._device, name)

    def allocate(self, nbytes: int) -> torch.Tensor:
        tensor = self._device.allocate(nbytes)
        self._device.compute.launch(partial(_poison, tensor))
        return tensor

    def release(self, tensor: torch.Tensor) -> None:
        self._device.compute.launch(partial(_poison, tensor))
        self._device.release(tensor)

    def pin(self, nbytes: int) -> torch.Tensor:
        return self._device.pin(nbytes).fill_(_POISON)

    def synchronize(self, streams: Sequence[DeviceStream]) -> None:
        self._device.synchronize([each.stream if isinstance(each, LateStream) else each for each in streams])


class _WithExtents(_PoisonedDevice):
    def release_extent(self, extent: torch.Tensor) -> None:
        self._device.compute.launch(partial(_poison, extent))
        assert isinstance(self._device, ReleasesExtents)
        self._device.release_extent(extent)

    def allocate_extent(self, extent: torch.Tensor) -> None:
        assert isinstance(self._device, ReleasesExtents)
        self._device.allocate_extent(extent)
        self._device.compute.launch(partial(_poison, extent))


class _WithoutRoom(_WithExtents):
    def allocate_extent(self, extent: torch.Tensor) -> None:
        raise OutOfDeviceMemory(f"no room for {extent.nbytes} bytes")


def poisoned(device: Device, *, copies_late_s: float = 0.0, kernels_late_s: float = 0.0) -> Device:
    """Return a device whose copies and kernels may be late, so that what is not ordered goes wrong."""
    return cast("Device", _WithExtents(device, copies_late_s, kernels_late_s))


def without_extents(device: Device) -> Device:
    """Return one that releases no extents, as a GPU."""
    return cast("Device", _PoisonedDevice(device))


def without_room_for_extents(device: Device) -> Device:
    return cast("Device", _WithoutRoom(device))


def _poison(tensor: torch.Tensor) -> None:
    tensor.fill_(_POISON)


def _spin(seconds: float) -> None:
    """Keep a stream of a GPU busy, at clocks of at most 2 GHz."""
    torch.cuda._sleep(round(seconds * 2e9))  # type: ignore[no-untyped-call]  # noqa: SLF001  # as PyTorch's own tests
