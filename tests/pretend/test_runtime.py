"""Memory of the pretended runtime by PyTorch and by plain calls of CUDA, in this process, and what is not there."""

import ctypes
import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tests.pretend.controls import Controls
from tests.pretended_gpu import setting
from tests.refusals import refusal
from vdnnsim.units import KIB, MIB

pytestmark = pytest.mark.pretend

SUCCESS, INVALID_VALUE, INVALID_RESOURCE_HANDLE = 0, 1, 400
ILLEGAL_ADDRESS, ALREADY_REGISTERED, NOT_SUPPORTED = 700, 712, 801
HOST_TO_DEVICE = 1


def resident_bytes() -> int:
    """What the host holds of this process."""
    told = Path("/proc/self/statm").read_text(encoding="ascii")
    return int(told.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def allocate(cuda: ctypes.CDLL, nbytes: int) -> int:
    address = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(nbytes)) == SUCCESS
    assert address.value
    return address.value


def free(cuda: ctypes.CDLL, *addresses: int) -> None:
    for address in addresses:
        assert cuda.cudaFree(ctypes.c_void_p(address)) == SUCCESS


def test_the_driver_shows_the_context_and_what_pytorch_reserves(controls: Controls) -> None:
    """A request above 10 MiB is a segment of its own, in whole 2 MiB (kMinLargeAlloc, kRoundLarge of PyTorch)."""
    before = controls.used_bytes()
    free_before, total = torch.cuda.mem_get_info()
    tensor = torch.empty(21 * MIB, dtype=torch.uint8, device="cuda")
    assert controls.used_bytes() == before + 22 * MIB
    assert torch.cuda.mem_get_info() == (free_before - 22 * MIB, total)
    assert total == setting("MEMORY_BYTES")
    assert before >= setting("CONTEXT_BYTES")
    del tensor


def test_a_card_holds_as_much_as_it_has_and_no_block_more(controls: Controls) -> None:
    """64 MiB are left: 40 and 24 fill them, and 2 more are refused, by PyTorch in its own words."""
    controls.set_memory_bytes(controls.used_bytes() + 64 * MIB)
    held = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in (40, 24)]
    told = refusal(torch.OutOfMemoryError, lambda: torch.empty(20 * MIB, dtype=torch.uint8, device="cuda"))
    assert told.startswith("CUDA out of memory. Tried to allocate 20.00 MiB.")
    assert "of which 0 bytes is free" in told
    assert "64.00 MiB is allocated by PyTorch" in told
    del held[0]
    held.append(torch.empty(40 * MIB, dtype=torch.uint8, device="cuda"))
    assert torch.cuda.memory_reserved() == 64 * MIB


def test_peak_stays_when_memory_is_freed(controls: Controls) -> None:
    controls.reset_peak()
    before = controls.used_bytes()
    tensor = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    del tensor
    torch.cuda.empty_cache()
    assert (controls.used_bytes(), controls.peak_bytes()) == (before, before + 30 * MIB)
    controls.reset_peak()
    assert controls.peak_bytes() == before


@pytest.mark.parametrize(
    ("nbytes", "times", "blocks"),
    [(4 * KIB, 256, 1), (4 * KIB, 513, 2), (96 * KIB, 22, 2), (768 * KIB, 2, 1), (MIB, 3, 2), (1536 * KIB, 2, 2)],
)
def test_small_requests_share_blocks_of_2_mib(
    controls: Controls, cuda: ctypes.CDLL, nbytes: int, times: int, blocks: int
) -> None:
    """512 of 4 KiB fill a block, 21 of 96 KiB, 2 of 768 KiB and of 1 MiB; more than 1 MiB has blocks of its own."""
    before = controls.used_bytes()
    addresses = [allocate(cuda, nbytes) for _ in range(times)]
    assert controls.used_bytes() - before == blocks * 2 * MIB
    assert all(nbytes <= later - earlier for earlier, later in pairwise(sorted(addresses)))
    free(cuda, *addresses)
    assert controls.used_bytes() == before


def test_a_freed_gap_is_filled_before_a_new_block_is_begun(controls: Controls, cuda: ctypes.CDLL) -> None:
    """Of 1 MiB, 512 KiB and 256 KiB in one block the second goes: 300 KiB take its place, not the end."""
    addresses = [allocate(cuda, size * KIB) for size in (1024, 512, 256)]
    before = controls.used_bytes()
    free(cuda, addresses[1])
    again = allocate(cuda, 300 * KIB)
    assert again == addresses[1]
    assert controls.used_bytes() == before
    free(cuda, addresses[0], again, addresses[2])


def test_freed_memory_returns_to_the_host(controls: Controls) -> None:
    """128 MiB are written to the device, which the host backs; a page holds 4 KiB. A tenth is for all else."""
    del controls
    source = torch.ones(128 * MIB, dtype=torch.uint8)
    empty = resident_bytes()
    tensor = torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
    assert resident_bytes() - empty < 12 * MIB
    tensor.copy_(source)
    assert resident_bytes() - empty > 116 * MIB
    del tensor
    torch.cuda.empty_cache()
    assert resident_bytes() - empty < 12 * MIB
    # 128 MiB that no kernel has computed are copied within the device, which tells no page of it from another.
    tensor = torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
    before = resident_bytes()
    copies = [tensor.clone(), tensor.clone()]
    assert resident_bytes() - before < 12 * MIB
    copies[1][5 * MIB : 5 * MIB + 3].copy_(torch.tensor([1, 2, 3], dtype=torch.uint8))
    there = copies[1].clone()[5 * MIB - 1 : 5 * MIB + 4]
    assert there.cpu().tolist() == [0, 1, 2, 3, 0]


def test_a_copy_beyond_a_block_is_an_illegal_access(cuda: ctypes.CDLL) -> None:
    """The block has 4 MiB; its last byte is there, and the next one not."""
    address = allocate(cuda, 4 * MIB)
    source = ctypes.create_string_buffer(2)

    def copy(offset: int, nbytes: int) -> int:
        to = ctypes.c_void_p(address + offset)
        return int(cuda.cudaMemcpy(to, source, ctypes.c_size_t(nbytes), HOST_TO_DEVICE))

    assert copy(4 * MIB - 1, 1) == SUCCESS
    assert copy(4 * MIB - 1, 2) == ILLEGAL_ADDRESS
    free(cuda, address)
    assert copy(0, 1) == ILLEGAL_ADDRESS
    cuda.cudaGetLastError()
    # Double free is an error.
    for nbytes in (4 * KIB, 4 * MIB):
        address = allocate(cuda, nbytes)
        free(cuda, address)
        assert cuda.cudaFree(ctypes.c_void_p(address)) == INVALID_VALUE
    cuda.cudaGetLastError()


def test_pinning_lasts_as_the_profile_states(controls: Controls, cuda: ctypes.CDLL) -> None:
    buffer = ctypes.create_string_buffer(3 * MIB)
    before = controls.clock_ns
    assert cuda.cudaHostRegister(buffer, ctypes.c_size_t(3 * MIB), 0) == SUCCESS
    expected = setting("PIN_LATENCY_S") + 3 * MIB / setting("PIN_BYTES_PER_S")
    assert controls.clock_ns - before == pytest.approx(expected * 1e9, abs=1)
    middle = ctypes.c_void_p(ctypes.addressof(buffer) + MIB)
    assert cuda.cudaHostRegister(middle, ctypes.c_size_t(KIB), 0) == ALREADY_REGISTERED
    assert cuda.cudaHostUnregister(buffer) == SUCCESS
    cuda.cudaGetLastError()
    # Pytorch knows pinned memory.
    count = controls.count("pin")
    tensor = torch.empty(33 * MIB, dtype=torch.uint8, pin_memory=True)
    assert tensor.is_pinned()
    assert controls.count("pin") == count + 1
    assert not torch.empty(5).is_pinned()


def test_absent_calls_and_unknown_attributes_are_refused_by_name(cuda: ctypes.CDLL) -> None:
    address = ctypes.c_void_p()
    cuda.cudaGetErrorString.restype = ctypes.c_char_p
    assert cuda.cudaMallocManaged(ctypes.byref(address), ctypes.c_size_t(4), 1) == NOT_SUPPORTED
    assert cuda.cudaGetErrorString(NOT_SUPPORTED) == b"cudaMallocManaged is not in the pretended CUDA runtime"
    assert cuda.cudaGetLastError() == NOT_SUPPORTED
    # Number 9999 is none of CUDA's.
    value = ctypes.c_int()
    cuda.cudaGetErrorString.restype = ctypes.c_char_p
    assert cuda.cudaDeviceGetAttribute(ctypes.byref(value), 9999, 0) == NOT_SUPPORTED
    assert b"attribute 9999" in cuda.cudaGetErrorString(NOT_SUPPORTED)
    cuda.cudaGetLastError()
