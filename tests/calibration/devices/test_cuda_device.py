"""Calls of the CUDA device to PyTorch, whose CUDA is replaced by a GPU that counts its events."""

import types
import weakref
from contextlib import nullcontext

import pytest
import torch

from calibration.devices.cuda import CudaDevice
from calibration.devices.interface import OutOfDeviceMemory
from vdnnsim.errors import DeviceError, ExecutionRefused
from vdnnsim.plans.trace import MemoryCount

SUCCESS, TOO_MUCH = 0, 2
"""Codes of CUDA's runtime: cudaSuccess, cudaErrorMemoryAllocation."""

MOST_PINNED = 10**6


class Gpu:
    """A GPU on which an event takes a millisecond and nothing else takes time."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.memory = dict.fromkeys(
            (
                f"{kind}_bytes.all.{when}"
                for kind in ("requested", "allocated", "reserved")
                for when in ("current", "peak")
            ),
            0,
        )
        self.clock_ms = 0
        self.registered: dict[int, int] = {}
        self.segments: list[dict[str, object]] = []

    def register(self, address: int, nbytes: int, _flags: int) -> int:
        if nbytes > MOST_PINNED:
            return TOO_MUCH
        self.registered[address] = nbytes
        return SUCCESS

    def unregister(self, address: int) -> int:
        del self.registered[address]
        return SUCCESS

    @property
    def runtime(self) -> types.SimpleNamespace:
        """The calls of CUDA's runtime that are used."""
        return types.SimpleNamespace(
            cudaHostRegister=self.register,
            cudaHostUnregister=self.unregister,
            cudaGetErrorString=lambda code: {TOO_MUCH: "out of memory"}[code],
            cudaError=types.SimpleNamespace(success=SUCCESS),
        )

    def stream(self, _device: torch.device) -> types.SimpleNamespace:
        stream = types.SimpleNamespace(synchronize=lambda: self.log.append("synchronize stream"), cuda_stream=7)
        stream.device_index = 0
        stream.wait_event = lambda event: self.log.append(f"wait for {event.time_ms}")
        return stream

    def event(self, *, enable_timing: bool) -> types.SimpleNamespace:
        assert enable_timing
        event = types.SimpleNamespace(synchronize=lambda: None)

        def record(_stream: object) -> None:
            self.clock_ms += 1
            event.time_ms = self.clock_ms
            self.log.append(f"event {self.clock_ms}")

        event.record = record
        event.elapsed_time = lambda other: float(other.time_ms - event.time_ms)
        return event


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    properties = types.SimpleNamespace(name="NVIDIA H200", total_memory=1000, L2_cache_size=50)
    replaced = {
        "Event": gpu.event,
        "Stream": gpu.stream,
        "set_device": lambda _: None,
        "get_device_properties": lambda _: properties,
        "set_per_process_memory_fraction": lambda fraction, _: gpu.log.append(f"fraction {fraction}"),
        "stream": lambda _: nullcontext(),
        "current_stream": gpu.stream,
        "set_stream": lambda _: None,
        "synchronize": lambda _: gpu.log.append("synchronize"),
        "reset_peak_memory_stats": lambda _: gpu.log.append("reset peaks"),
        "memory_stats": lambda _: dict(gpu.memory),
        "memory_snapshot": lambda: gpu.segments,
        "empty_cache": lambda: gpu.log.append("empty cache"),
        "cudart": lambda: gpu.runtime,
        "check_error": lambda code: gpu.log.append(f"checked {code}"),
    }
    for name, replacement in replaced.items():
        monkeypatch.setattr(torch.cuda, name, replacement)
    monkeypatch.setattr("torch._C._cuda_getCurrentRawStream", lambda _: 0, raising=False)
    clearing = "torch._C._cuda_clearCublasWorkspaces"
    monkeypatch.setattr(clearing, lambda: gpu.log.append("workspaces of cuBLAS go"), raising=False)
    monkeypatch.setattr(CudaDevice, "_allocate_workspace_of_cublas", lambda _: gpu.log.append("products"))
    return gpu


def test_the_workspace_of_cublas_comes_before_the_clock_and_the_peaks(gpu: Gpu) -> None:
    CudaDevice(0)
    assert gpu.log == ["event 1", "products", "event 2", "synchronize", "reset peaks", "event 3"]


def test_marks_stand_around_the_work_and_count_from_begin(gpu: Gpu) -> None:
    """The origin is the third event; the marks are the fourth and the fifth: 1 and 2 ms later."""
    device = CudaDevice(0)
    gpu.log.clear()
    interval = device.compute.launch(lambda: gpu.log.append("work"))
    assert gpu.log == ["event 4", "work", "event 5"]
    assert (interval.start.time_s, interval.end.time_s) == (0.001, 0.002)


def test_a_mark_keeps_the_clock_that_it_was_made_under_and_can_be_waited_for(gpu: Gpu) -> None:
    """Origins are events 3 and 5, the marks 4 and 6: each 1 ms after its own."""
    device = CudaDevice(0)
    first = device.compute.mark()
    device.begin()
    assert (first.time_s, device.memory.mark().time_s) == (0.001, 0.001)
    device.memory.wait(first)
    assert gpu.log[-1] == "wait for 4"


def test_peaks_are_beyond_what_stood_at_begin(gpu: Gpu) -> None:
    """100, 512 and 2048 stand at begin; the peaks of 150, 1024 and 4096 lie 50, 512 and 2048 above."""
    device = CudaDevice(0)
    for kind, current in (("requested", 100), ("allocated", 512), ("reserved", 2048)):
        gpu.memory[f"{kind}_bytes.all.current"] = current
    device.begin()
    for kind, peak in (("requested", 150), ("allocated", 1024), ("reserved", 4096)):
        gpu.memory[f"{kind}_bytes.all.peak"] = peak
    assert device.peaks() == MemoryCount(50, 512, 2048)


def test_the_context_is_what_the_driver_counts_beyond_pytorch(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1000 bytes 300 are free and 512 reserved: 188 are left, which beside others are not ours alone."""
    assert not gpu.log
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (300, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 512)
    assert CudaDevice(0).context_bytes() == 188
    assert CudaDevice(0, is_shared=True).context_bytes() is None


@pytest.mark.parametrize(
    ("limit_bytes", "memory_bytes", "fractions"),
    [(250, 250, ["fraction 0.25", "fraction 1.0"]), *((limit, 1000, []) for limit in (None, 1000, 2000))],
)
def test_a_limit_is_a_fraction_of_the_memory_until_the_device_closes(
    gpu: Gpu, limit_bytes: int | None, memory_bytes: int, fractions: list[str]
) -> None:
    device = CudaDevice(0, limit_bytes)
    device.close()
    assert device.memory_bytes == memory_bytes
    assert [entry for entry in gpu.log if entry.startswith("fraction")] == fractions


def test_a_pace_is_refused_before_anything_is_queued(gpu: Gpu) -> None:
    device = CudaDevice(0)
    gpu.log.clear()
    with pytest.raises(ExecutionRefused, match="paced"):
        device.compute.launch(lambda: gpu.log.append("work"), lasts_s=1.0)
    assert gpu.log == []


def test_out_of_memory_is_one_line(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore")

    device = CudaDevice(0)
    with pytest.raises(OutOfDeviceMemory, match=r"^CUDA out of memory\. Tried to allocate 2 GiB\.$"):
        device.compute.launch(refuse)
    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(OutOfDeviceMemory, match="Tried to allocate 2 GiB"):
        device.allocate(2**31)
    assert gpu.log


def test_closing_frees_the_workspaces_of_cublas_before_the_cache_and_ends_all_work(gpu: Gpu) -> None:
    """They lie in memory of PyTorch's allocator, which can free only what is unused."""
    device = CudaDevice(0)
    gpu.log.clear()
    device.close()
    device.close()
    with pytest.raises(AssertionError, match="closed"):
        device.compute.launch(lambda: gpu.log.append("work"))
    assert gpu.log == ["synchronize", "workspaces of cuBLAS go", "empty cache"]


def test_exactly_the_requested_bytes_are_pinned_until_unpinned(gpu: Gpu) -> None:
    device = CudaDevice(0)
    first, second = device.pin(100_000), device.pin(300_001)
    assert (first.nbytes, second.nbytes) == (100_000, 300_001)
    assert gpu.registered == {first.data_ptr(): 100_000, second.data_ptr(): 300_001}
    device.unpin(first)
    assert gpu.registered == {second.data_ptr(): 300_001}
    device.close()
    assert gpu.registered == {}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("nbytes", "message"), [(2**20, r"cannot pin 1\.00 MiB: out of memory"), (2**62, "Cannot allocate memory")]
)
def test_pinning_failure_is_an_error(nbytes: int, message: str) -> None:
    """CUDA refuses a megabyte, and the host itself more than it can address."""
    device = CudaDevice(0)
    with pytest.raises(DeviceError, match=message):
        device.pin(nbytes)


def test_rest_of_a_workspaces_segment_is_held_until_close(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 MiB a workspace takes 8 and leaves 3 and 9 MiB; a rest of 1 MiB, which no large request gets, stays.

    So does what lies in an empty segment, in one for small requests, of another stream or of another GPU.
    """
    rests = [{"state": state, "size": size << 20} for state, size in (("active_allocated", 8), ("inactive", 9))]
    rests += [{"state": "inactive", "size": size << 20} for size in (3, 1)]
    used = {"device": 0, "stream": 7, "segment_type": "large", "active_size": 8 << 20, "blocks": rests}
    others = ({"active_size": 0}, {"segment_type": "small"}, {"stream": 8}, {"device": 1})
    gpu.segments = [used, *(used | other for other in others)]
    taken: dict[int, weakref.ref[torch.Tensor]] = {}

    def allocate(_: CudaDevice, nbytes: int) -> torch.Tensor:
        tensor = torch.empty(0)
        taken[nbytes] = weakref.ref(tensor)
        return tensor

    monkeypatch.setattr(CudaDevice, "allocate", allocate)
    device = CudaDevice(0)
    assert [*taken] == [3 << 20, 9 << 20]
    assert all(tensor() is not None for tensor in taken.values())
    device.close()
    assert all(tensor() is None for tensor in taken.values())
