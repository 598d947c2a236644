"""The CPU as a device: streams are threads, memory is counted in the order of the host's requests."""

import os
import sys
from collections import Counter
from collections.abc import Sequence

import torch

from calibration.devices.interface import DeviceStream, OutOfDeviceMemory
from calibration.devices.worker import HostClock, WorkerStream
from vdnnsim.errors import DeviceError
from vdnnsim.plans.trace import MemoryCount
from vdnnsim.units import format_bytes

# PyTorch aligns what it allocates on a CPU to this (c10/core/alignment.h, gAlignment).
_ALIGNMENT_BYTES = 64

# Of Python's threads. Its default of 5 milliseconds is longer than most kernels: a host that issues operations would
# hold up the streams.
_SWITCH_INTERVAL_S = 100e-6


class CpuDevice:
    """The CPU as a device; one at a time, since it changes settings of the process until `close`.

    The compute stream uses all cores but one, which is left to copies and the host; every other stream has one thread.
    The thread that opened the device uses as many as the compute stream, so that a reference computed there sums in the
    same order.

    Memory is counted in the order in which the host allocates and frees it, as PyTorch's allocator does on a GPU; the
    real memory lives until the streams are done with it. Only requested bytes are counted: there are no blocks and
    segments.

    Args:
        memory_limit_bytes: capacity, where that is less than the machine's memory; None for all of it.
        clock: of the streams' pace and of all times; None for the host's.
    """

    name = "CPU"
    torch_device = torch.device("cpu")
    granule_bytes = _ALIGNMENT_BYTES
    # Filling the hundreds of megabytes of a server's cache with operands would take longer than timing all kernels.
    cache_bytes = 0

    def __init__(self, memory_limit_bytes: int | None = None, clock: HostClock | None = None) -> None:
        machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.memory_bytes = machine_bytes if memory_limit_bytes is None else min(machine_bytes, memory_limit_bytes)
        self.compute_threads = max(1, len(os.sched_getaffinity(0)) - 1)
        self._live_bytes = self._peak_bytes = self._baseline_bytes = 0
        # By address of an allocation, the bytes of its released extents.
        self._away_bytes: Counter[int] = Counter()
        self._host_threads = torch.get_num_threads()
        self._switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._clock = clock or HostClock()
        self._streams: list[WorkerStream] = []
        self.compute = self._start_stream(self.compute_threads)
        self.memory = self._start_stream(1)
        torch.set_num_threads(self.compute_threads)

    def new_stream(self) -> WorkerStream:
        stream = self._start_stream(1)
        # The new thread has changed the default of further threads.
        torch.set_num_threads(self.compute_threads)
        return stream

    def allocate(self, nbytes: int) -> torch.Tensor:
        self._check_room(nbytes)
        try:
            tensor = torch.empty(nbytes, dtype=torch.uint8)
        except RuntimeError as refusal:
            raise OutOfDeviceMemory(f"the machine refuses {nbytes} bytes") from refusal
        self._live_bytes += nbytes
        self._peak_bytes = max(self._peak_bytes, self._live_bytes)
        return tensor

    def release(self, tensor: torch.Tensor) -> None:
        held_bytes = tensor.nbytes - self._away_bytes.pop(_address(tensor), 0)
        assert held_bytes <= self._live_bytes, "more is released than was allocated"
        self._live_bytes -= held_bytes

    def release_extent(self, extent: torch.Tensor) -> None:
        """Count an extent as released; the machine keeps it."""
        self._away_bytes[_address(extent)] += extent.nbytes
        self._live_bytes -= extent.nbytes

    def allocate_extent(self, extent: torch.Tensor) -> None:
        self._check_room(extent.nbytes)
        self._away_bytes[_address(extent)] -= extent.nbytes
        self._live_bytes += extent.nbytes
        self._peak_bytes = max(self._peak_bytes, self._live_bytes)

    def count_internal_allocation(self, nbytes: int) -> None:
        """Count what the next kernel will allocate and free by itself."""
        self._check_room(nbytes)
        self._peak_bytes = max(self._peak_bytes, self._live_bytes + nbytes)

    def pin(self, nbytes: int) -> torch.Tensor:
        """Return uninitialized host memory; nothing is pinned here."""
        try:
            return torch.empty(nbytes, dtype=torch.uint8)
        except RuntimeError as refusal:
            raise DeviceError(f"the machine refuses {format_bytes(nbytes)} for copies") from refusal

    def unpin(self, tensor: torch.Tensor) -> None:
        """Do nothing: the caller's last reference frees it."""

    def empty_cache(self) -> None:
        """Do nothing: there is no cache."""

    def begin(self) -> None:
        """Wait for all streams, set the clock to zero and the peak to what is in use."""
        self.synchronize(self._streams)
        self._baseline_bytes = self._peak_bytes = self._live_bytes
        self._clock.restart()

    def now_s(self) -> float:
        return self._clock.now_s()

    def synchronize(self, streams: Sequence[DeviceStream]) -> None:
        """Wait until these streams are done, and raise the first failure of the first stream that has one."""
        own = [stream for stream in streams if isinstance(stream, WorkerStream)]
        assert len(own) == len(streams), "a device can only synchronize streams of its own"
        for mark in [stream.mark() for stream in own]:
            mark.join()
        failures = [failure for stream in own if (failure := stream.take_failure()) is not None]
        if failures:
            raise failures[0]

    def peaks(self) -> MemoryCount:
        """Return the maximum since `begin`, beyond what was in use then."""
        return MemoryCount(self._peak_bytes - self._baseline_bytes, None, None)

    def in_use(self) -> MemoryCount:
        return MemoryCount(self._live_bytes, None, None)

    def context_bytes(self) -> None:
        """Return nothing: there is no driver that counts."""

    def close(self) -> None:
        """End all streams, drop pending work, and restore the settings of the process."""
        for stream in self._streams:
            stream.stop()
        for stream in self._streams:
            stream.join()
        sys.setswitchinterval(self._switch_interval_s)
        torch.set_num_threads(self._host_threads)

    def _start_stream(self, torch_threads: int) -> WorkerStream:
        stream = WorkerStream(f"stream {len(self._streams)}", self._clock, torch_threads)
        self._streams.append(stream)
        return stream

    def _check_room(self, nbytes: int) -> None:
        if self._live_bytes + nbytes > self.memory_bytes:
            raise OutOfDeviceMemory(
                f"{nbytes} bytes do not fit: {self._live_bytes} of {self.memory_bytes} bytes are in use"
            )


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
