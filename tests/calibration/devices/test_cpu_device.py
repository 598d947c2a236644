"""What the CPU device counts and what it sets; its arithmetic, and its pinned memory where a process forks.

A child has none of the pinned pages of its parent, and gives none back.
"""

import ctypes
import faulthandler
import mmap
import os
import signal
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibration.devices import pinned_memory
from calibration.devices.arithmetic import arithmetic
from calibration.devices.cpu import CpuDevice
from calibration.devices.interface import OutOfDeviceMemory
from calibration.devices.pinned_memory import PinnedMemory
from vdnnsim.plans.trace import MemoryCount

STEPS = st.lists(st.tuples(st.sampled_from(["allocate", "release", "kernel", "begin"]), st.integers(0, 900)))


@pytest.fixture(scope="module")
def shared() -> Iterator[CpuDevice]:
    device = CpuDevice()
    yield device
    device.close()


@given(steps=STEPS)
def test_memory_is_counted_and_runs_out_at_the_limit(shared: CpuDevice, steps: list[tuple[str, int]]) -> None:
    """Of 1000 B: what is live, and the peak since begin, over what was live then; a refusal counts nothing."""
    shared.memory_bytes = 1000
    held: list[torch.Tensor] = []
    live = peak = baseline = 0
    shared._live_bytes = shared._peak_bytes = shared._baseline_bytes = 0  # noqa: SLF001 - a device of its own is slow
    for step, nbytes in steps:
        if step == "begin":
            shared.begin()
            peak = baseline = live
        elif step == "release" and held:
            live -= held[-1].nbytes
            shared.release(held.pop())
        elif step in ("allocate", "kernel") and live + nbytes > 1000:
            with pytest.raises(OutOfDeviceMemory, match=f"{nbytes} bytes do not fit: {live} of 1000"):
                (shared.allocate if step == "allocate" else shared.count_internal_allocation)(nbytes)
        elif step == "allocate":
            held.append(shared.allocate(nbytes))
            live += nbytes
            peak = max(peak, live)
        elif step == "kernel":
            shared.count_internal_allocation(nbytes)
            peak = max(peak, live + nbytes)
        assert shared.in_use() == MemoryCount(live, None, None)
        assert shared.peaks() == MemoryCount(peak - baseline, None, None)


def test_a_machine_that_refuses_is_out_of_memory_too(device: CpuDevice) -> None:
    """A capacity of an exabyte, which no machine has, so the refusal is the operating system's."""
    device.memory_bytes = 2**60
    with pytest.raises(OutOfDeviceMemory, match="the machine refuses"):
        device.allocate(2**60)
    assert device.peaks().requested_bytes == 0
    # Memory is flat bytes at the granule of the allocator.
    for nbytes in (1, 100, 4097, 1 << 20):
        for tensor in (device.allocate(nbytes), device.pin(nbytes)):
            assert (tensor.dtype, tensor.shape, tensor.device.type) == (torch.uint8, (nbytes,), "cpu")
            assert tensor.data_ptr() % device.granule_bytes == 0


@pytest.mark.parametrize("limit_bytes", [None, 2**60])
def test_the_capacity_is_the_memory_of_the_machine(limit_bytes: int | None) -> None:
    device = CpuDevice(limit_bytes)
    device.close()
    assert device.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(("cores", "threads"), [(5, 4), (1, 1)])
def test_all_cores_but_one_compute_beside_copies(monkeypatch: pytest.MonkeyPatch, cores: int, threads: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    before = torch.get_num_threads(), sys.getswitchinterval()
    device = CpuDevice()
    streams = [device.compute, device.memory, device.new_stream()]
    found: list[int] = []
    for stream in streams:
        stream.launch(lambda: found.append(torch.get_num_threads()))
        device.synchronize([stream])
    assert found == [threads, 1, 1]
    assert torch.get_num_threads() == threads
    device.close()
    assert (torch.get_num_threads(), sys.getswitchinterval()) == before


def test_an_extent_that_was_released_makes_room_and_may_find_none_again(device: CpuDevice) -> None:
    """Of 100 B one takes 80 and releases 50; another 60 fit then, and 40 of the 50 do not."""
    device.memory_bytes = 100
    device.begin()
    one = device.allocate(80)
    device.release_extent(one[10:60])
    other = device.allocate(60)
    with pytest.raises(OutOfDeviceMemory, match="40 bytes do not fit: 90 of 100 bytes are in use"):
        device.allocate_extent(one[10:50])
    device.allocate_extent(one[50:60])
    assert device.peaks().requested_bytes == 100
    device.release(one)
    with pytest.raises(AssertionError, match="more is released"):
        device.release(torch.empty(61, dtype=torch.uint8))
    device.release(other)
    device.release(device.allocate(100))


def settings_of_pytorch() -> tuple[object, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.backends.cuda.matmul.fp32_precision,
        cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
        cudnn.rnn.fp32_precision,  # type: ignore[attr-defined]
        cudnn.deterministic,
        cudnn.benchmark,
    )


@pytest.mark.parametrize(("tf32", "precision"), [(True, "tf32"), (False, "ieee")])
def test_settings_hold_inside_and_are_restored_whatever_happens(
    tf32: bool,  # noqa: FBT001  # a parameter of the test
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = settings_of_pytorch()
    with suppress(ValueError), arithmetic(tf32=tf32):
        assert settings_of_pytorch() == (precision, precision, precision, True, False)
        raise ValueError
    assert settings_of_pytorch() == before


def test_old_tf32_settings_can_be_read_afterwards() -> None:
    """PyTorch raises where the old and the new settings contradict each other; put back, they do not."""
    with arithmetic(tf32=False):
        pass
    assert torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


LENGTH = 5 * mmap.PAGESIZE
_MAP_FIXED = 0x10


@pytest.fixture
def unpinned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Addresses that were unpinned, with no runtime of CUDA."""
    found: list[int] = []
    runtime = types.SimpleNamespace(
        cudaHostRegister=lambda *_: 0, cudaHostUnregister=found.append, cudaError=types.SimpleNamespace(success=0)
    )
    monkeypatch.setattr(pinned_memory, "_runtime", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "check_error", lambda _: None)
    return found


def flags_of(address: int) -> list[str]:
    """Return the flags of the kernel's mapping that begins at an address, or holds it."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first:
            start, stop = (int(each, 16) for each in first.split("-"))
            inside = start <= address < stop
        elif inside and first == "VmFlags:":
            return line.split()[1:]
    return []


def in_child(work: Callable[[], int]) -> int:
    """Run work in a child that forked; return how it ended, as `waitpid` has it."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        status = 99
        try:
            status = work()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


@pytest.mark.usefixtures("unpinned")
def test_a_child_has_none_of_it() -> None:
    """The kernel's flag `dc`, do not copy on fork; a child that reads it dies, and the parent's content is its own."""
    block = PinnedMemory().take(LENGTH)
    block.fill_(7)
    assert "dc" in flags_of(block.data_ptr())
    assert in_child(lambda: len(flags_of(block.data_ptr()))) == 0
    ended = in_child(lambda: int(block[0]))
    assert os.WIFSIGNALED(ended)
    assert os.WTERMSIG(ended) == signal.SIGSEGV
    assert int(block.sum()) == 7 * LENGTH


def test_a_child_gives_nothing_back(unpinned: list[int]) -> None:
    """Neither to CUDA, which it has not, nor to the kernel: where the pages were it has mapped others by then."""
    memory = PinnedMemory()
    address = memory.take(LENGTH).data_ptr()

    def work() -> int:
        map_at = ctypes.CDLL(None).mmap
        map_at.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        map_at.restype = ctypes.c_void_p
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        assert map_at(address, LENGTH, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == address
        memory._blocks.clear()  # noqa: SLF001 - nothing else holds it here
        # Dies where it was unmapped.
        return ctypes.c_char.from_address(address).value[0] + memory.is_of_this_process

    assert in_child(work) == 0
    assert memory.is_of_this_process
    memory.give_all_back()
    assert unpinned == [address]
