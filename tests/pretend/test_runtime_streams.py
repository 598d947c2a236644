"""Streams, events, the clock and kernels of the pretended runtime, in this process."""

import ctypes

import pytest
import torch

from tests.pretend.controls import Controls
from tests.pretended_gpu import setting
from vdnnsim.units import MIB

pytestmark = pytest.mark.pretend


SUCCESS, INVALID_VALUE, INVALID_RESOURCE_HANDLE = 0, 1, 400


def new_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def new_event(*, timed: bool = False) -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=timed)  # type: ignore[no-untyped-call]


def has_come(what: torch.cuda.Stream | torch.cuda.Event) -> bool:
    return bool(what.query())


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
    # Three kernels within one operator of 1 ms, an inner one of 7 ms ignored, end 1 ms after the first was issued.
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
    # The function stands behind a kernel of 1 ms on the same stream, and the copy behind both.
    tensor = torch.zeros(4, dtype=torch.uint8, device="cuda")
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda address: ctypes.memset(address, 9, 4) and None)
    bytes_at = controls.bytes_at(tensor.data_ptr())
    torch.cuda.synchronize()
    with controls.operator(1e-3):
        tensor.add_(1)
    assert cuda.cudaLaunchHostFunc(None, function, ctypes.c_void_p(bytes_at)) == SUCCESS
    assert tensor.cpu().tolist() == [9, 9, 9, 9]


def test_a_kernel_has_its_name_and_a_host_function_can_stand_in_for_it(controls: Controls, cuda: ctypes.CDLL) -> None:
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
