"""The CUDA device on a real GPU: streams, clock, memory, and the order that waits bring."""

from collections.abc import Callable

import pytest
import torch

from calibration.devices.arithmetic import arithmetic
from calibration.devices.cuda import CudaDevice
from calibration.devices.interface import OutOfDeviceMemory
from calibration.devices.opening import open_device
from calibration.devices.provenance import provenance
from vdnnsim.errors import DeviceError
from vdnnsim.hardware.sections import what_identifies

pytestmark = [pytest.mark.gpu, pytest.mark.pretend]
MIB = 2**20


def copying(target: torch.Tensor, source: torch.Tensor) -> Callable[[], None]:
    def work() -> None:
        target.copy_(source, non_blocking=True)

    return work


def filling(target: torch.Tensor, value: int) -> Callable[[], None]:
    def work() -> None:
        target.fill_(value)

    return work


def test_requested_bytes_are_those_asked_for_and_allocated_ones_in_granules(device: CudaDevice) -> None:
    """1, 512 and 513 bytes take one, one and two granules of 512 bytes."""
    device.begin()
    kept = [device.allocate(nbytes) for nbytes in (1, 512, 513)]
    peaks = device.peaks()
    assert peaks.requested_bytes == 1026
    assert peaks.allocated_bytes == 4 * device.granule_bytes == 2048
    assert all(tensor.data_ptr() % device.granule_bytes == 0 for tensor in kept)


def test_large_request_reserves_its_own_segment(device: CudaDevice) -> None:
    """From an empty cache, 31 MiB and a byte take a segment rounded up to 2 MiB: 32 MiB."""
    device.empty_cache()
    device.begin()
    tensor = device.allocate(31 * MIB + 1)
    assert device.peaks().reserved_bytes == 32 * MIB
    device.release(tensor)


def test_first_product_leaves_no_memory(device: CudaDevice) -> None:
    """The workspace of cuBLAS was there before; only the result of 64 KiB is new."""
    matrix = device.allocate(65536).view(torch.float32).view(128, 128)

    def multiply() -> None:
        torch.mm(matrix, matrix)

    device.begin()
    device.compute.launch(multiply)
    device.synchronize([device.compute])
    assert device.peaks().requested_bytes == 65536


@pytest.mark.arithmetic
def test_a_copy_waits_for_what_it_copies_and_the_result_is_exact(device: CudaDevice) -> None:
    source, target = device.allocate(256 * MIB), device.pin(256 * MIB)
    target.zero_()
    assert target.is_pinned()
    device.begin()
    for value in range(1, 20):
        device.compute.launch(filling(source, value))
    device.memory.wait(device.compute.mark())
    copy = device.memory.launch(copying(target, source))
    after = device.memory.mark()
    device.compute.wait(after)
    erased = device.compute.launch(filling(source, 0))
    device.synchronize([device.compute, device.memory])
    assert bool((target == 19).all())
    assert 0.0 < copy.start.time_s < copy.end.time_s <= after.time_s <= erased.end.time_s <= device.now_s()


def test_both_directions_overlap(device: CudaDevice) -> None:
    """Two copies of 512 MiB in opposite directions, given together, are under way at the same time."""
    further = device.new_stream()
    down, up = (device.allocate(512 * MIB), device.allocate(512 * MIB))
    from_down, to_up = device.pin(512 * MIB), device.pin(512 * MIB)
    device.begin()
    first = device.memory.launch(copying(from_down, down))
    second = further.launch(copying(up, to_up))
    device.synchronize([device.memory, further])
    assert second.start.time_s < first.end.time_s
    assert first.start.time_s < second.end.time_s


def test_memory_runs_out_at_the_limit() -> None:
    device = CudaDevice(0, memory_limit_bytes=1024 * MIB)
    with pytest.raises(OutOfDeviceMemory):
        device.allocate(1100 * MIB)
    assert device.allocate(512 * MIB).nbytes == 512 * MIB
    device.close()
    assert torch.cuda.get_per_process_memory_fraction(0) == 1.0


@pytest.mark.hardware("nothing rounds to TF32")
def test_tf32_rounds_and_ieee_does_not(device: CudaDevice) -> None:
    """1 + 2^-12 has 12 bits of mantissa; TF32 keeps 10, so its product with one loses them."""
    if torch.cuda.get_device_capability(0) < (8, 0):
        pytest.skip("TF32 came with compute capability 8.0")
    factor = torch.full((256, 256), 1 + 2**-12, device=device.torch_device)
    unit = torch.eye(256, device=device.torch_device)
    with arithmetic(tf32=True):
        rounded = torch.mm(factor, unit)
    with arithmetic(tf32=False):
        exact = torch.mm(factor, unit)
    assert torch.equal(exact, factor)
    assert torch.equal(rounded, torch.ones_like(factor))


def test_provenance_identifies_no_owner(device: CudaDevice) -> None:
    told = provenance(device)
    assert {"gpu", "compute_capability", "cuda", "cudnn", "torch", "processor", "date"} <= dict(told).keys()
    assert [(name, text) for name, text in told if what_identifies(name, text)] == []


def test_missing_gpu_is_refused() -> None:
    count = torch.cuda.device_count()
    with pytest.raises(DeviceError, match=f"there is no GPU {count}"):
        open_device("cuda", count, warn=lambda _: None)
