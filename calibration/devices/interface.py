"""Protocol of a device: streams that run in order, marks in time, memory that is counted.

The host queues work on streams in the order of a plan and runs ahead, as with CUDA. A mark is a point of a stream, as
an event of CUDA: another stream can wait for it, and after a synchronization its time is known. All times are seconds
since `begin`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from vdnnsim.errors import DeviceError
from vdnnsim.plans.trace import MemoryCount


class Mark(Protocol):
    """A point of a stream."""

    @property
    def time_s(self) -> float:
        """When the stream reached it; known once the stream has been synchronized."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From the start of a piece of work on its stream to its end."""

    start: Mark
    end: Mark

    @property
    def duration_s(self) -> float:
        """How long it took; known once the stream has been synchronized."""
        return self.end.time_s - self.start.time_s


class DeviceStream(Protocol):
    """A queue of work that runs in order."""

    def launch(self, work: Callable[[], None], *, lasts_s: float | None = None) -> Interval:
        """Queue work.

        Args:
            work: calls PyTorch; on a GPU it only launches kernels or copies, on the CPU it does them.
            lasts_s: on the CPU, the least time for which the work holds the stream, counted from when the stream was
                free for it; None for its own time. A GPU refuses anything else.
        """

    def mark(self) -> Mark:
        """Queue a point."""

    def wait(self, mark: Mark) -> None:
        """Hold the stream until a mark of another one has been reached."""


class OutOfDeviceMemory(DeviceError):  # noqa: N818  # says what it is, as torch.cuda.OutOfMemoryError
    """The device has no room for an allocation, or for what a kernel allocates itself."""


class Device(Protocol):
    """One device.

    Attributes:
        name: `NVIDIA H200`, `CPU`.
        memory_bytes: its capacity; on the CPU, the memory of the machine.
        granule_bytes: unit to which its allocator rounds a request.
        cache_bytes: of the cache in which a kernel that is timed repeatedly would find its operands, unlike in an
            iteration; 0 to ignore it.
    """

    name: str
    torch_device: torch.device
    memory_bytes: int
    granule_bytes: int
    cache_bytes: int

    @property
    def compute(self) -> DeviceStream:
        """Its compute stream."""

    @property
    def memory(self) -> DeviceStream:
        """Its memory stream."""

    def new_stream(self) -> DeviceStream:
        """Return a further stream; it lives until `close`."""

    def allocate(self, nbytes: int) -> torch.Tensor:
        """Return uninitialized bytes of device memory, a flat uint8 tensor, allocated on the compute stream.

        Raises:
            OutOfDeviceMemory: there is no room.
        """

    def release(self, tensor: torch.Tensor) -> None:
        """Release what `allocate` returned; the caller drops its own references at the same time."""

    def count_internal_allocation(self, nbytes: int) -> None:
        """Count what the next kernel will allocate and free by itself, where the device does not see it (CPU).

        Raises:
            OutOfDeviceMemory: there is no room.
        """

    def pin(self, nbytes: int) -> torch.Tensor:
        """Return uninitialized host memory, a flat uint8 tensor, pinned where the device copies from pinned memory.

        Exactly so many bytes are pinned, until `unpin` or `close`.

        Raises:
            DeviceError: the host refuses.
        """

    def unpin(self, tensor: torch.Tensor) -> None:
        """Unpin what `pin` returned, once no copy uses it; the caller drops its own references and views."""

    def empty_cache(self) -> None:
        """Free what the allocator caches, so that what is reserved can be counted; the next iteration is slow."""

    def begin(self) -> None:
        """Wait for all streams, set the clock to zero and the peaks of memory to what is in use."""

    def now_s(self) -> float:
        """Seconds since `begin` by the clock of the host."""

    def synchronize(self, streams: Sequence[DeviceStream]) -> None:
        """Wait until these streams are done.

        Failures in them are raised here; a stream drops all work behind a failure.
        """

    def peaks(self) -> MemoryCount:
        """Return the peaks since `begin`, beyond what was in use then, and reserved beyond what was reserved then."""

    def in_use(self) -> MemoryCount:
        """Return what this process uses now."""

    def context_bytes(self) -> int | None:
        """Return the device memory of the process beyond all tensors: CUDA's context, libraries, kernels.

        Kernels are loaded when they first run, so it grows. None where no driver counts it, or where other processes
        use the device, whose memory is counted with it.
        """

    def close(self) -> None:
        """End all streams; nothing can be launched afterwards."""


@runtime_checkable
class ReleasesExtents(Protocol):
    """A device that can also release an extent of an allocation."""

    def release_extent(self, extent: torch.Tensor) -> None:
        """Release the memory of some bytes of what `allocate` returned; their content is lost."""

    def allocate_extent(self, extent: torch.Tensor) -> None:
        """Allocate again, on the compute stream, what `release_extent` released; `release` frees what is left.

        Raises:
            OutOfDeviceMemory: there is no room.
        """
