"""What the CPU device counts and what it sets."""

import os
import sys
from collections.abc import Iterator

import pytest
import torch

from calibration.devices.cpu import CpuDevice
from calibration.devices.interface import OutOfDeviceMemory
from vdnnsim.plans.trace import MemoryCount


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    device = CpuDevice()
    yield device
    device.close()


@pytest.fixture
def small_device() -> Iterator[CpuDevice]:
    device = CpuDevice(memory_limit_bytes=1000)
    yield device
    device.close()


def test_the_peak_is_the_most_that_was_in_use_at_once(device: CpuDevice) -> None:
    """1000 + 500 = 1500; then 500 + 200 = 700 is less."""
    device.begin()
    first = device.allocate(1000)
    device.allocate(500)
    device.release(first)
    device.allocate(200)
    assert device.peaks() == MemoryCount(1500, None, None)


def test_what_a_kernel_count_internal_allocation_lies_on_top_of_what_is_in_use(device: CpuDevice) -> None:
    """700 and 2000 on top of it; afterwards 700 again, so 800 more make 1500."""
    device.begin()
    device.allocate(700)
    device.count_internal_allocation(2000)
    assert device.peaks().requested_bytes == 2700
    device.allocate(800)
    assert device.peaks().requested_bytes == 2700


def test_peaks_count_from_begin_beyond_what_was_in_use_then(device: CpuDevice) -> None:
    """300 of 1000 are left at begin; 100 more, then 1000 given back and 50 taken: never more than 100 above."""
    first, _ = device.allocate(700), device.allocate(300)
    device.release(first)
    device.begin()
    second = device.allocate(100)
    device.release(second)
    device.allocate(50)
    assert device.peaks().requested_bytes == 100


def test_giving_back_what_was_there_at_begin_makes_room_below_the_peak(device: CpuDevice) -> None:
    """1000 at begin, given back; 1200 then stand where 1000 stood: 200 more."""
    tensor = device.allocate(1000)
    device.begin()
    device.release(tensor)
    device.allocate(1200)
    assert device.peaks().requested_bytes == 200


def test_memory_runs_out_at_the_limit_and_not_before(small_device: CpuDevice) -> None:
    small_device.allocate(600)
    with pytest.raises(OutOfDeviceMemory, match="401 bytes do not fit: 600 of 1000 bytes are in use"):
        small_device.allocate(401)
    small_device.count_internal_allocation(400)
    small_device.allocate(400)
    with pytest.raises(OutOfDeviceMemory, match="1 bytes do not fit"):
        small_device.count_internal_allocation(1)


def test_what_did_not_fit_is_not_counted(small_device: CpuDevice) -> None:
    with pytest.raises(OutOfDeviceMemory):
        small_device.allocate(1001)
    assert small_device.peaks().requested_bytes == 0


def test_a_machine_that_refuses_is_out_of_memory_too(device: CpuDevice) -> None:
    """A capacity of an exabyte, which no machine has, so the refusal is the operating system's."""
    device.memory_bytes = 2**60
    with pytest.raises(OutOfDeviceMemory, match="the machine refuses"):
        device.allocate(2**60)
    assert device.peaks().requested_bytes == 0


def test_more_cannot_be_released_than_was_allocated(device: CpuDevice) -> None:
    device.allocate(10)
    with pytest.raises(AssertionError, match="more is released"):
        device.release(torch.empty(11, dtype=torch.uint8))


def test_memory_is_flat_bytes_at_the_granule_of_the_allocator(device: CpuDevice) -> None:
    for nbytes in (1, 100, 4097, 1 << 20):
        for tensor in (device.allocate(nbytes), device.pin(nbytes)):
            assert (tensor.dtype, tensor.shape, tensor.device.type) == (torch.uint8, (nbytes,), "cpu")
            assert tensor.data_ptr() % device.granule_bytes == 0


def test_without_a_limit_the_capacity_is_the_memory_of_the_machine(device: CpuDevice) -> None:
    assert device.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_limit_does_not_add_memory() -> None:
    device = CpuDevice(memory_limit_bytes=2**60)
    assert device.memory_bytes < 2**60
    device.close()


def test_all_cores_but_one_compute_and_copies_have_a_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five cores four compute, on the compute stream and in the thread of the host; afterwards all is as before."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4})
    before = torch.get_num_threads(), sys.getswitchinterval()
    device = CpuDevice()
    streams = [device.compute, device.memory, device.new_stream()]
    threads = dict.fromkeys(range(3), 0)
    for number, stream in enumerate(streams):
        stream.launch(lambda number=number: threads.update({number: torch.get_num_threads()}))  # type: ignore[misc]
    device.synchronize(streams)
    assert list(threads.values()) == [4, 1, 1]
    assert torch.get_num_threads() == 4
    device.close()
    assert (torch.get_num_threads(), sys.getswitchinterval()) == before


def test_one_core_computes_and_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    device = CpuDevice()
    assert device.compute_threads == 1
    device.close()


def test_a_part_that_was_given_back_makes_room_and_may_find_none_again(device: CpuDevice) -> None:
    """Of 100 B one takes 80 and gives 50 back; another 60 fit then, and 40 of the 50 do not."""
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
    device.release(other)
    device.release(device.allocate(100))
