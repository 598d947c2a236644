"""Where copies run beside the user's own loop: a stream of the GPU, or a thread of the CPU, and pinned memory."""

import weakref
from functools import partial
from typing import Any, Protocol

import torch

from calibration.arena import HostMemory
from calibration.devices.pinned_memory import PinnedMemory
from calibration.devices.worker import HostClock, WorkerMark, WorkerStream


class Lane(HostMemory, Protocol):
    """Copies in order, beside what the loop computes, to and from memory that it pins."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Any:  # noqa: ANN401 - a mark of the lane
        """Begin a copy after what the loop has issued and the copies so far; return the mark of its end."""

    def wait(self, mark: Any) -> None:  # noqa: ANN401 - as above
        """Let what the loop issues from now on wait for a mark."""


class CpuLane:
    """A thread that copies while the thread of the loop computes.

    Attributes:
        stream: the thread; `clock` is what its marks are read by.
    """

    def __init__(self) -> None:
        threads = torch.get_num_threads()
        self.clock = HostClock()
        self.stream = WorkerStream("vdnnsim copies", self.clock, 1)
        # The new thread's number has become that of threads to come.
        torch.set_num_threads(threads)

    def pin(self, nbytes: int) -> torch.Tensor:
        """Return host memory, from which a CPU copies as it is."""
        return torch.empty(nbytes, dtype=torch.uint8)

    def unpin(self, tensor: torch.Tensor) -> None:
        """Leave it to the caller."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> WorkerMark:
        """Queue a copy."""
        self.stream.launch(partial(_copy, target, source))
        return self.stream.mark()

    def wait(self, mark: WorkerMark) -> None:
        """Wait, and raise what failed."""
        mark.join()
        failure = self.stream.take_failure()
        if failure is not None:
            raise failure


class CudaLane:
    """A stream of its own on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pinned = PinnedMemory()
        weakref.finalize(self, self._pinned.give_all_back)

    def pin(self, nbytes: int) -> torch.Tensor:
        """Return pinned memory."""
        return self._pinned.take(nbytes)

    def unpin(self, tensor: torch.Tensor) -> None:
        """Unpin it."""
        torch.cuda.synchronize(self._device)
        self._pinned.give_back(tensor)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> torch.cuda.Event:
        """Launch a copy."""
        self.stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self.stream):
            _copy(target, source)
            mark: torch.cuda.Event = self.stream.record_event()
            return mark

    def wait(self, mark: torch.cuda.Event) -> None:
        """Let the current stream wait."""
        torch.cuda.current_stream(self._device).wait_event(mark)


def lane_for(device: torch.device) -> Lane:
    """Return a lane of a device."""
    return CudaLane(device) if device.type == "cuda" else CpuLane()


def card_of(device: torch.device) -> tuple[str, tuple[int, int] | None]:
    """Return what a device is called, and its compute capability where it is of CUDA."""
    if device.type != "cuda":
        return device.type, None
    return torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    with torch.no_grad():
        target.copy_(source, non_blocking=True)
