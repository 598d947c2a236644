"""The pretended runtime by PyTorch and by plain calls of CUDA, in this process."""

import ctypes
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tests.pretend.controls import Controls
from tests.pretended_gpu import free_cache, setting
from vdnnsim.units import KIB, MIB

pytestmark = pytest.mark.pretend

SUCCESS, INVALID_VALUE, INVALID_RESOURCE_HANDLE = 0, 1, 400
ILLEGAL_ADDRESS, ALREADY_REGISTERED, NOT_SUPPORTED = 700, 712, 801
HOST_TO_DEVICE = 1


def resident_bytes() -> int:
    """What the host holds of this process."""
    told = Path("/proc/self/statm").read_text(encoding="ascii")
    return int(told.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def new_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def new_event(*, timed: bool = False) -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=timed)  # type: ignore[no-untyped-call]


def has_come(what: torch.cuda.Stream | torch.cuda.Event) -> bool:
    return bool(what.query())


@pytest.fixture
def controls() -> Iterator[Controls]:
    controls = Controls()
    free_cache()
    yield controls
    controls.set_memory_bytes(int(setting("MEMORY_BYTES")))


@pytest.fixture
def cuda(controls: Controls) -> ctypes.CDLL:
    """The calls of the runtime itself."""
    del controls
    return ctypes.CDLL(None)


def allocate(cuda: ctypes.CDLL, nbytes: int) -> int:
    address = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(nbytes)) == SUCCESS
    assert address.value
    return address.value


def free(cuda: ctypes.CDLL, *addresses: int) -> None:
    for address in addresses:
        assert cuda.cudaFree(ctypes.c_void_p(address)) == SUCCESS


# ---- memory ----


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
    with pytest.raises(torch.OutOfMemoryError) as refusal:
        torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
    told = str(refusal.value)
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


def test_copies_of_unwritten_memory_take_no_host_memory(controls: Controls) -> None:
    """128 MiB that no kernel has computed are copied within the device, which tells no page of it from another."""
    del controls
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


def test_double_free_is_an_error(cuda: ctypes.CDLL) -> None:
    for nbytes in (4 * KIB, 4 * MIB):
        address = allocate(cuda, nbytes)
        free(cuda, address)
        assert cuda.cudaFree(ctypes.c_void_p(address)) == INVALID_VALUE
    cuda.cudaGetLastError()


# ---- pinned memory ----


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


def test_pytorch_knows_pinned_memory(controls: Controls) -> None:
    count = controls.count("pin")
    tensor = torch.empty(33 * MIB, dtype=torch.uint8, pin_memory=True)
    assert tensor.is_pinned()
    assert controls.count("pin") == count + 1
    assert not torch.empty(5).is_pinned()


# ---- streams, events, the clock ----


def test_a_copy_takes_latency_and_bytes_over_the_link(controls: Controls) -> None:
    """The second event waits for the copy, which began when it was issued, one issue after the first event."""
    del controls
    source = torch.empty(50 * MIB, dtype=torch.uint8, pin_memory=True)
    tensor = torch.empty_like(source, device="cuda")
    begin, end = (new_event(timed=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    tensor.copy_(source, non_blocking=True)
    end.record()
    end.synchronize()
    expected_s = setting("ISSUE_S") + setting("COPY_LATENCY_S") + 50 * MIB / setting("H2D_BYTES_PER_S")
    assert begin.elapsed_time(end) == pytest.approx(expected_s * 1e3, abs=0.0006)


def test_waiting_moves_the_clock_to_the_end_of_the_work(controls: Controls) -> None:
    """An operator of 2 ms is issued, which takes the host one issue, and awaited: its kernel ends 2 ms after that."""
    tensor = torch.empty(1000, device="cuda")
    torch.cuda.synchronize()
    before = controls.clock_ns
    with controls.operator(2e-3):
        tensor.add_(1)
    assert controls.clock_ns - before == round(setting("ISSUE_S") * 1e9)
    torch.cuda.synchronize()
    assert controls.clock_ns - before == round(setting("ISSUE_S") * 1e9) + 2_000_000


def test_kernels_of_an_operator_share_its_time(controls: Controls) -> None:
    """Three kernels within one operator of 1 ms, an inner one of 7 ms ignored, end 1 ms after the first was issued."""
    tensor = torch.empty(1000, device="cuda")
    torch.cuda.synchronize()
    before = controls.clock_ns
    with controls.operator(1e-3):
        tensor.add_(1)
        with controls.operator(7e-3):
            tensor.add_(1)
        tensor.add_(1)
    torch.cuda.synchronize()
    assert controls.clock_ns - before == round(setting("ISSUE_S") * 1e9) + 1_000_000


def test_a_copy_runs_beside_a_kernel_and_kernels_one_after_another(controls: Controls) -> None:
    """Kernels of 3 and 2 ms on two streams take 5 ms; a copy on a third one does not add to it."""
    tensor = torch.empty(1000, device="cuda")
    source = torch.empty(10 * MIB, dtype=torch.uint8, pin_memory=True)
    to = torch.empty_like(source, device="cuda")
    streams = [new_stream() for _ in range(3)]
    torch.cuda.synchronize()
    before = controls.clock_ns
    for stream, seconds in zip(streams, (3e-3, 2e-3), strict=False):
        with torch.cuda.stream(stream), controls.operator(seconds):
            tensor.add_(1)
    with torch.cuda.stream(streams[2]):
        to.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    assert controls.clock_ns - before == round(setting("ISSUE_S") * 1e9) + 5_000_000


def test_a_stream_that_waits_lets_others_use_the_engine(controls: Controls) -> None:
    """B waits for A's copy before its kernel; C's kernel of 1 ms, issued last, is done long before the copy is.

    100 MiB take 1.9 ms over the fastest link here (55 GB/s), and C ends about 1 ms after it was issued.
    """
    tensor = torch.empty(1000, device="cuda")
    source = torch.empty(100 * MIB, dtype=torch.uint8, pin_memory=True)
    to = torch.empty_like(source, device="cuda")
    copying, waiting, free_one = (new_stream() for _ in range(3))
    torch.cuda.synchronize()
    with torch.cuda.stream(copying):
        to.copy_(source, non_blocking=True)
    waiting.wait_stream(copying)
    with torch.cuda.stream(waiting), controls.operator(1e-3):
        tensor.add_(1)
    before = controls.clock_ns
    with torch.cuda.stream(free_one), controls.operator(1e-3):
        tensor.add_(1)
    free_one.synchronize()
    assert controls.clock_ns - before == round(setting("ISSUE_S") * 1e9) + 1_000_000
    assert not has_come(copying)
    waiting.synchronize()
    assert has_come(copying)


def test_the_default_stream_waits_for_streams_that_block_it(controls: Controls, cuda: ctypes.CDLL) -> None:
    """A stream made by cudaStreamCreate holds up the default one; one of PyTorch's, which do not block, does not."""
    tensor = torch.empty(1000, device="cuda")
    handle = ctypes.c_void_p()
    assert cuda.cudaStreamCreate(ctypes.byref(handle)) == SUCCESS
    blocking = torch.cuda.ExternalStream(handle.value)  # type: ignore[no-untyped-call]
    for stream, waits in ((blocking, True), (new_stream(), False)):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream), controls.operator(1e-3):
            tensor.add_(1)
        torch.cuda.default_stream().synchronize()
        assert has_come(stream) is waits
    torch.cuda.synchronize()
    assert cuda.cudaStreamDestroy(handle) == SUCCESS


def test_events_order_streams_and_answer_queries(controls: Controls) -> None:
    tensor = torch.empty(1000, device="cuda")
    first, second = new_stream(), new_stream()
    event = new_event()
    torch.cuda.synchronize()
    assert has_come(event), "an event that nobody recorded is none to wait for"
    with torch.cuda.stream(first), controls.operator(4e-3):
        tensor.add_(1)
    event.record(first)
    second.wait_event(event)
    assert not has_come(event)
    before = controls.clock_ns
    second.synchronize()
    assert has_come(event)
    assert 3_900_000 < controls.clock_ns - before < 4_000_000


def test_a_stream_or_event_that_was_destroyed_is_none(cuda: ctypes.CDLL) -> None:
    """A stream's place is taken by the next one, whose handle is another all the same."""
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cudaStreamCreate(ctypes.byref(first)) == SUCCESS
    assert cuda.cudaStreamSynchronize(first) == SUCCESS
    assert cuda.cudaStreamDestroy(first) == SUCCESS
    assert cuda.cudaStreamCreate(ctypes.byref(second)) == SUCCESS
    assert cuda.cudaStreamSynchronize(first) == INVALID_RESOURCE_HANDLE
    assert cuda.cudaStreamDestroy(first) == INVALID_RESOURCE_HANDLE
    assert cuda.cudaStreamDestroy(second) == SUCCESS
    event = ctypes.c_void_p()
    assert cuda.cudaEventCreate(ctypes.byref(event)) == SUCCESS
    assert cuda.cudaEventRecord(event, None) == SUCCESS
    assert cuda.cudaEventDestroy(event) == SUCCESS
    assert cuda.cudaEventRecord(event, None) == INVALID_RESOURCE_HANDLE
    cuda.cudaGetLastError()


def test_host_function_is_called_when_its_stream_reaches_it(controls: Controls, cuda: ctypes.CDLL) -> None:
    tensor = torch.empty(1000, device="cuda")
    calls: list[int] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: calls.append(controls.clock_ns))
    torch.cuda.synchronize()
    before = controls.clock_ns
    with controls.operator(1e-3):
        tensor.add_(1)
    assert cuda.cudaLaunchHostFunc(None, function, None) == SUCCESS
    assert calls == []
    torch.cuda.synchronize()
    assert [call - before for call in calls] == [round(setting("ISSUE_S") * 1e9) + 1_000_000]


def test_a_copy_reads_what_a_function_of_the_host_wrote_before_it(controls: Controls, cuda: ctypes.CDLL) -> None:
    """The function stands behind a kernel of 1 ms on the same stream, and the copy behind both."""
    tensor = torch.zeros(4, dtype=torch.uint8, device="cuda")
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda address: ctypes.memset(address, 9, 4) and None)
    bytes_at = controls.bytes_at(tensor.data_ptr())
    torch.cuda.synchronize()
    with controls.operator(1e-3):
        tensor.add_(1)
    assert cuda.cudaLaunchHostFunc(None, function, ctypes.c_void_p(bytes_at)) == SUCCESS
    assert tensor.cpu().tolist() == [9, 9, 9, 9]


# ---- kernels ----


def test_a_kernel_has_its_name_and_a_function_of_the_host_can_stand_in_for_it(
    controls: Controls, cuda: ctypes.CDLL
) -> None:
    """512 x 3 floats are filled by a kernel of PyTorch's that has FillFunctor in its name, in one launch."""
    tensor = torch.empty(512, 3, device="cuda")
    blocks: list[int] = []
    dim3 = type("Dim3", (ctypes.Structure,), {"_fields_": [(axis, ctypes.c_uint) for axis in "xyz"]})
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, dim3, dim3)
    stand_in = kind(lambda _, grid, block: blocks.append(grid.x * block.x))
    assert cuda.pretend_stand_in(b"FillFunctor", stand_in) > 10
    launches = controls.count("launch")
    tensor.fill_(2)
    assert controls.count("launch") == launches + 1
    assert len(blocks) == 1
    assert 0 < blocks[0] <= 2 * 512 * 3
    cuda.pretend_stand_in(b"FillFunctor", None)
    tensor.fill_(2)
    assert len(blocks) == 1


# ---- what is not there ----


def test_a_call_that_is_absent_fails_by_its_name(cuda: ctypes.CDLL) -> None:
    address = ctypes.c_void_p()
    cuda.cudaGetErrorString.restype = ctypes.c_char_p
    assert cuda.cudaMallocManaged(ctypes.byref(address), ctypes.c_size_t(4), 1) == NOT_SUPPORTED
    assert cuda.cudaGetErrorString(NOT_SUPPORTED) == b"cudaMallocManaged is not in the pretended CUDA runtime"
    assert cuda.cudaGetLastError() == NOT_SUPPORTED


def test_capturing_a_graph_is_refused_by_name(controls: Controls) -> None:
    del controls
    tensor = torch.zeros(3, device="cuda")
    with (
        pytest.raises(
            torch.AcceleratorError, match="cudaStreamBeginCapture is not in the pretended CUDA runtime; graphs"
        ),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        tensor.add_(1)


def test_unknown_attribute_is_refused_by_its_number(cuda: ctypes.CDLL) -> None:
    """Number 9999 is none of CUDA's."""
    value = ctypes.c_int()
    cuda.cudaGetErrorString.restype = ctypes.c_char_p
    assert cuda.cudaDeviceGetAttribute(ctypes.byref(value), 9999, 0) == NOT_SUPPORTED
    assert b"attribute 9999" in cuda.cudaGetErrorString(NOT_SUPPORTED)
    cuda.cudaGetLastError()
