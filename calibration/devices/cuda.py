"""A CUDA GPU as a device: streams and events of CUDA, memory of PyTorch's caching allocator."""

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Literal, TypeVar

import torch

from calibration.devices.interface import DeviceStream, Interval, Mark, OutOfDeviceMemory
from calibration.devices.pinned_memory import PinnedMemory
from vdnnsim.errors import ExecutionRefused
from vdnnsim.memory.segments import LARGEST_SMALL_BYTES
from vdnnsim.memory.settings import GRANULE_BYTES
from vdnnsim.plans.trace import MemoryCount

Result = TypeVar("Result")


class CudaMark:
    """An event of a stream, timed against the event that was recorded at `begin`."""

    def __init__(self, origin: torch.cuda.Event, event: torch.cuda.Event) -> None:
        self._origin = origin
        self.event = event

    @property
    def time_s(self) -> float:
        """When the stream reached it, to about half a microsecond."""
        milliseconds: float = self._origin.elapsed_time(self.event)
        return milliseconds / 1e3


class CudaStream:
    """A stream of CUDA, which records an event before and after each work."""

    def __init__(self, stream: torch.cuda.Stream, mark: Callable[[torch.cuda.Stream], CudaMark]) -> None:
        self.stream = stream
        self._mark = mark
        self._handle = stream.cuda_stream

    def launch(self, work: Callable[[], None], *, lasts_s: float | None = None) -> Interval:
        """Launch work; see the interface. It runs out of memory here, not when the stream is synchronized."""
        if lasts_s is not None:
            raise ExecutionRefused("a GPU cannot be paced, only the CPU")
        start = self.mark()
        self.call(work)
        return Interval(start, self.mark())

    def call(self, work: Callable[[], Result]) -> Result:
        """Return what work on this stream returns; it raises OutOfDeviceMemory where PyTorch's allocator has no room.

        To make a stream current takes 20 us of a host that launches a kernel in 8.
        """
        try:
            if torch._C._cuda_getCurrentRawStream(self.stream.device_index) == self._handle:  # noqa: SLF001
                return work()
            with torch.cuda.stream(self.stream):
                return work()
        except torch.cuda.OutOfMemoryError as refusal:
            raise OutOfDeviceMemory(str(refusal).partition("\n")[0]) from refusal

    def mark(self) -> CudaMark:
        return self._mark(self.stream)

    def wait(self, mark: Mark) -> None:
        """Hold the stream until a mark of another one has been reached."""
        assert isinstance(mark, CudaMark), "a stream can only wait for marks of its own device"
        self.stream.wait_event(mark.event)


class CudaDevice:
    """One GPU, the current device of the process, since pinned memory belongs to one too.

    Until it is closed its compute stream is the thread's current stream.

    Opening it multiplies two small matrices on the compute stream: cuBLAS allocates a workspace at the first product on
    a stream and keeps it (32 MiB on Hopper), which would otherwise count as the first iteration's. The rest of its
    segment is held too, so that no plan finds room there. Closing frees the workspaces of all streams.

    Args:
        index: its number among the devices that CUDA shows.
        memory_limit_bytes: how much of it PyTorch may reserve; None for all.
        is_shared: whether other processes use it, whose memory the driver counts with this one's.
    """

    granule_bytes = GRANULE_BYTES

    def __init__(self, index: int, memory_limit_bytes: int | None = None, *, is_shared: bool = False) -> None:
        torch.cuda.set_device(index)
        self.index = index
        self.is_shared = is_shared
        self.torch_device = torch.device("cuda", index)
        properties = torch.cuda.get_device_properties(index)
        self.name = properties.name
        self.memory_bytes = properties.total_memory
        self.cache_bytes = properties.L2_cache_size
        self._limited = memory_limit_bytes is not None and memory_limit_bytes < properties.total_memory
        if memory_limit_bytes is not None and self._limited:
            self.memory_bytes = memory_limit_bytes
            torch.cuda.set_per_process_memory_fraction(memory_limit_bytes / properties.total_memory, index)
        self._origin = _timing_event()
        self._origin_s = perf_counter()
        self._open = True
        self._stream_before = torch.cuda.current_stream(self.torch_device)
        self.compute = self.new_stream()
        self.memory = self.new_stream()
        self.compute.launch(self._allocate_workspace_of_cublas)
        self._beside_workspaces = self._rest_of_segments()
        self._pinned = PinnedMemory()
        self._at_begin = self.in_use()
        torch.cuda.set_stream(self.compute.stream)
        self.begin()

    def new_stream(self) -> CudaStream:
        """Return a further stream. PyTorch has 32 of them and then gives out the first again."""
        return CudaStream(torch.cuda.Stream(self.torch_device), self._marked)  # type: ignore[no-untyped-call]

    def allocate(self, nbytes: int) -> torch.Tensor:
        return self.compute.call(partial(torch.empty, nbytes, dtype=torch.uint8, device=self.torch_device))

    def release(self, tensor: torch.Tensor) -> None:
        """Do nothing: the caller's last reference returns the block to the compute stream's pool."""

    def count_internal_allocation(self, nbytes: int) -> None:
        """Do nothing: the allocator counts it."""

    def pin(self, nbytes: int) -> torch.Tensor:
        """Return uninitialized pinned memory; see the interface."""
        return self._pinned.take(nbytes)

    def unpin(self, tensor: torch.Tensor) -> None:
        self._pinned.give_back(tensor)

    def empty_cache(self) -> None:
        torch.cuda.synchronize(self.torch_device)
        torch.cuda.empty_cache()

    def begin(self) -> None:
        """Wait for the GPU, set the clock to zero and the peaks to what is in use and reserved.

        The cache is not emptied: cudaMalloc, which waits for the GPU, would then be called between the kernels.
        """
        torch.cuda.synchronize(self.torch_device)
        torch.cuda.reset_peak_memory_stats(self.torch_device)
        self._at_begin = self.in_use()
        # Earlier marks keep their own origin.
        self._origin = _timing_event()
        self._origin.record(self.compute.stream)
        self._origin.synchronize()
        self._origin_s = perf_counter()

    def now_s(self) -> float:
        return perf_counter() - self._origin_s

    def synchronize(self, streams: Sequence[DeviceStream]) -> None:
        """Wait until these streams are done, and raise what CUDA reports of their kernels."""
        for each in streams:
            assert isinstance(each, CudaStream), "a device can only synchronize streams of its own"
            each.stream.synchronize()

    def peaks(self) -> MemoryCount:
        """Return the peaks since `begin`, beyond what was in use then."""
        return self._counted("peak") - self._at_begin

    def in_use(self) -> MemoryCount:
        return self._counted("current")

    def context_bytes(self) -> int | None:
        """Return what the driver counts as used beyond what PyTorch's allocator reserved; see the interface."""
        if self.is_shared:
            return None
        free_bytes, total_bytes = torch.cuda.mem_get_info(self.index)
        return total_bytes - free_bytes - torch.cuda.memory_reserved(self.index)

    def close(self) -> None:
        """Wait for the GPU, lift the limit of memory, unpin host memory, and free the workspaces of cuBLAS."""
        if not self._open:
            return
        self._open = False
        torch.cuda.synchronize(self.torch_device)
        torch.cuda.set_stream(self._stream_before)
        if self._limited:
            torch.cuda.set_per_process_memory_fraction(1.0, self.index)
        self._pinned.give_all_back()
        self._beside_workspaces.clear()
        torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - there is no public way
        torch.cuda.empty_cache()

    def _counted(self, when: Literal["current", "peak"]) -> MemoryCount:
        statistics = torch.cuda.memory_stats(self.torch_device)
        levels = ("requested", "allocated", "reserved")
        return MemoryCount(*(statistics[f"{level}_bytes.all.{when}"] for level in levels))

    def _marked(self, stream: torch.cuda.Stream) -> CudaMark:
        assert self._open, "the device is closed"
        event = _timing_event()
        event.record(stream)
        return CudaMark(self._origin, event)

    def _allocate_workspace_of_cublas(self) -> None:
        matrix = torch.ones((16, 16), device=self.torch_device)
        torch.mm(matrix, matrix)
        # With a bias PyTorch may call cublasLt, which has its own.
        torch.addmm(matrix[0], matrix, matrix)

    def _rest_of_segments(self) -> list[torch.Tensor]:
        """Allocate the free blocks of the compute stream's large segments in use."""
        stream = self.compute.stream.cuda_stream
        sizes = [
            block["size"]
            for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
            if (segment["device"], segment["stream"], segment["segment_type"]) == (self.index, stream, "large")
            if segment["active_size"]
            for block in segment["blocks"]
            if block["state"] == "inactive" and block["size"] > LARGEST_SMALL_BYTES
        ]
        # The smallest first: each finds the block of its own size.
        return [self.allocate(nbytes) for nbytes in sorted(sizes)]


def _timing_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
