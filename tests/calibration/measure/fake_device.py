"""A device whose clock is a number, kernels of stated times, and progress displays that print nothing."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle

import torch

from calibration.devices.interface import DeviceStream, Interval, Mark, OutOfDeviceMemory
from calibration.kernels.interface import Kernel, KernelTensors
from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.trace import MemoryCount

# Powers of two, of which sums and differences are exact: the same work takes the same time whenever it runs.
LAUNCH_S = 2.0**-20
SHORTEST_S = 2.0**-17
PIN_S = 2.0**-10
QUICK_S = 2.0**-10
SMALL_S = 1.5 * 2.0**-10


@dataclass(frozen=True)
class FakeMark:
    time_s: float


class FakeStream:
    """A stream that runs work at once and adds the time that it states."""

    def __init__(self, device: "FakeDevice") -> None:
        self._device = device
        self.ready_s = 0.0

    def launch(self, work: Callable[[], None], *, lasts_s: float | None = None) -> Interval:
        assert lasts_s is None
        device = self._device
        device.host_s += LAUNCH_S
        start_s = max(self.ready_s, device.host_s)
        device.lasts_s = device.cold_s.pop(0) if device.cold_s else SHORTEST_S
        work()
        device.launched += 1
        # A work of many launches is done when its last one is.
        self.ready_s = max(start_s + device.lasts_s, device.host_s)
        return Interval(device.mark_at(start_s), device.mark_at(self.ready_s))

    def mark(self) -> FakeMark:
        self._device.host_s += LAUNCH_S
        return self._device.mark_at(max(self.ready_s, self._device.host_s))

    def wait(self, mark: Mark) -> None:
        raise NotImplementedError


class FakeDevice:
    name = "Fake"
    torch_device = torch.device("cpu")
    granule_bytes = 512
    cache_bytes = 0
    context: int | None = None

    def __init__(self, memory_bytes: int = 2**30) -> None:
        self.memory_bytes = memory_bytes
        self.host_s = self._origin_s = self.lasts_s = 0.0
        self.launched = self.live_bytes = self.pinned_bytes = self.own_bytes = self._peak_bytes = 0
        self.cold_s: list[float] = []
        self.streams: list[FakeStream] = []
        self.compute, self.memory = self.new_stream(), self.new_stream()

    def new_stream(self) -> FakeStream:
        self.streams.append(FakeStream(self))
        return self.streams[-1]

    def allocate(self, nbytes: int) -> torch.Tensor:
        if self.live_bytes + nbytes > self.memory_bytes:
            raise OutOfDeviceMemory("full")
        self.live_bytes += nbytes
        return torch.zeros(nbytes, dtype=torch.uint8)

    def release(self, tensor: torch.Tensor) -> None:
        self.live_bytes -= tensor.nbytes

    def count_internal_allocation(self, nbytes: int) -> None:
        if self.live_bytes + nbytes > self.memory_bytes:
            raise OutOfDeviceMemory("full")

    def take_during_work(self, nbytes: int) -> None:
        """Pretend that the running work allocates and frees so much."""
        self._peak_bytes = max(self._peak_bytes, nbytes)

    def pin(self, nbytes: int) -> torch.Tensor:
        self.host_s += PIN_S
        self.pinned_bytes += nbytes
        return torch.zeros(nbytes, dtype=torch.uint8)

    def unpin(self, tensor: torch.Tensor) -> None:
        self.pinned_bytes -= tensor.nbytes

    def empty_cache(self) -> None:
        pass

    def begin(self) -> None:
        self.synchronize(self.streams)
        self._origin_s = self.host_s
        self._peak_bytes = 0

    def now_s(self) -> float:
        return self.host_s - self._origin_s

    def mark_at(self, time_s: float) -> FakeMark:
        return FakeMark(time_s - self._origin_s)

    def synchronize(self, streams: Sequence[DeviceStream]) -> None:
        for stream in streams:
            assert isinstance(stream, FakeStream)
            self.host_s = max(self.host_s, stream.ready_s)

    def peaks(self) -> MemoryCount:
        return MemoryCount(self._peak_bytes, None, None)

    def in_use(self) -> MemoryCount:
        return MemoryCount(self.live_bytes, None, None)

    def context_bytes(self) -> int | None:
        return self.context

    def close(self) -> None:
        pass

    def work(self, *seconds: float) -> Callable[[], None]:
        """Return a work whose runs take these seconds in turn."""
        turns = cycle(seconds)

        def run() -> None:
            self.lasts_s = next(turns)

        return run


class FakeGpu(FakeDevice):
    """One that calls itself a GPU, whose pauses last as long as its 3 billion cycles a second make them."""

    torch_device = torch.device("cuda", 0)

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[int] = []

    def sleep(self, cycles: int) -> None:
        self.pauses.append(cycles)
        self.lasts_s = cycles / 3e9

    def many_launches(self, *, issue_s: float, lasts_s: float) -> Callable[[], None]:
        """Return a work that takes the host a while to launch, and the device to compute."""

        def run() -> None:
            self.host_s += issue_s
            self.lasts_s = lasts_s

        return run


@dataclass
class FakeLibrary:
    """Two algorithms for every shape, both of a time of their own."""

    device: FakeDevice
    killed_in: int = 0
    ran: Counter[tuple[KernelShape, str]] = field(default_factory=Counter)
    running: tuple[KernelShape, str] | None = None
    channels_last = False

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        shape = KernelShape.of(workload, layer, phase)

        def kernel(algorithm: str, seconds: float, passed_bytes: int) -> Kernel:
            def run(_: KernelTensors) -> None:
                self.running = shape, algorithm
                self.ran[self.running] += 1
                if self.ran.total() == self.killed_in:
                    raise KeyboardInterrupt
                self.device.lasts_s = seconds

            return Kernel(algorithm, "", passed_bytes, passed_bytes, run)

        return (kernel("quick", QUICK_S, 4096), kernel("small", SMALL_S, 0))


class Killer:
    """Interrupts after so many measurements, as Ctrl-C would; after 0 never."""

    def __init__(self, after: int = 0) -> None:
        self._after = after
        self.expected = 0
        self.finished: list[str] = []

    def expect(self, count: int) -> None:
        self.expected = count

    def done(self, name: str) -> None:
        self.finished.append(name)
        if len(self.finished) == self._after:
            raise KeyboardInterrupt
