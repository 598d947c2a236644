"""What the CPU device counts and what it sets."""

import os
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibration.devices.cpu import CpuDevice
from calibration.devices.interface import OutOfDeviceMemory
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
