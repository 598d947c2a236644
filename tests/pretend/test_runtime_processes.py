"""The pretended runtime under settings that a process is started with: several GPUs, delayed copies, its clocks."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.pretend

ROOT = Path(__file__).parents[2]
PRETEND = [sys.executable, "-m", "calibration.pretend", "--hardware", "h100_sxm"]


def run(script: str, *options: str, **variables: str) -> str:
    """Run Python on pretended cards of the kind that this process has; return what it printed, errors behind."""
    done = subprocess.run(
        [*PRETEND, *options, "--", sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout + done.stderr


# ---- expandable segments ----

EXPANDABLE = """
import torch
MIB = 1 << 20
torch.cuda.init(); torch.cuda.synchronize()
begin = torch.cuda.mem_get_info()[0]
taken = lambda: (begin - torch.cuda.mem_get_info()[0]) // MIB
first = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
second = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
second.copy_(torch.arange(50 * MIB).to(torch.uint8))
print(second.data_ptr() - first.data_ptr() == 30 * MIB, taken())
del first; torch.cuda.empty_cache(); print(taken())
print(torch.equal(second.cpu(), torch.arange(50 * MIB).to(torch.uint8)))
del second; torch.cuda.empty_cache(); print(taken())
"""


def test_expandable_segments_are_mapped_and_unmapped_in_pieces_of_20_mib() -> None:
    """30 and 50 MiB lie side by side in four pieces of 20 MiB (kLargeBuffer of PyTorch).

    All that the first leaves is the first piece, for the second one is also the second tensor's, whose bytes stay where
    they are.
    """
    told = run(EXPANDABLE, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert told.split() == ["True", "80", "60", "True", "0"], told


def test_expandable_segments_end_at_the_capacity() -> None:
    """78 of the card's 79 GiB do not fit beside its context together with 1 GiB more."""
    script = """
import torch
held = torch.empty(78 << 30, dtype=torch.uint8, device="cuda")
try: torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as refusal: print(refusal)
"""
    told = run(script, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert "Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 79.00 GiB" in told


def test_the_asynchronous_allocator_is_refused_with_a_sentence() -> None:
    told = run("import torch; torch.empty(3, device='cuda')", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    assert re.search(r"is not in the pretended CUDA runtime; PyTorch asks for it with backend:cudaMallocAsync", told), (
        told
    )


# ---- what the host may not touch ----

HOST_READ = """
import ctypes, torch
read = lambda tensor, byte: ctypes.c_ubyte.from_address(tensor.data_ptr() + byte).value
pinned = torch.full((8,), 7, dtype=torch.uint8).pin_memory()
there = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
there[:8].copy_(pinned)
print(read(pinned, 5), read(there[:8].cpu(), 5), flush=True)
print("read", read(there, 5))
"""


@pytest.mark.parametrize(("settings", "nbytes"), [("", 30 << 20), ("expandable_segments:True", 20 << 20)])
def test_the_host_ends_where_it_reads_device_memory(settings: str, nbytes: int) -> None:
    """As beside a real GPU; copies and pinned memory it may read.

    30 MiB are an allocation of their own, or begin with one of the pieces of 20 MiB that expandable segments are of.
    What was there to handle the signal, as Python's handler that says where it was, still does.
    """
    told = run(HOST_READ, PYTORCH_CUDA_ALLOC_CONF=settings, PYTHONFAULTHANDLER="1")
    first, second, *others = told.splitlines()
    assert first == "7 7"
    assert re.fullmatch(
        rf"host access to device memory at 0x\w+ of pretended GPU 0: byte 5 of an allocation of {nbytes}", second
    ), told
    assert any("Segmentation fault" in each for each in others)


def test_the_host_ends_where_it_reads_device_memory_that_was_freed() -> None:
    script = """
import ctypes
address, cuda = ctypes.c_void_p(), ctypes.CDLL(None)
assert cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(4)) == cuda.cudaFree(address) == 0
print(ctypes.c_ubyte.from_address(address.value).value)
"""
    assert re.fullmatch(r"host access to device memory at .*: nothing is allocated there\n", run(script))


# ---- several GPUs ----


def test_each_gpu_has_its_own_memory_and_context_and_sends_bytes_to_the_other() -> None:
    """16 MiB on the second GPU of two alike; the other one's context begins when it is first asked."""
    script = """
import torch
MIB = 1 << 20
from tests.pretend.controls import Controls
c = Controls()
there = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda:1")
print(torch.cuda.device_count(), c.used_bytes(1) // MIB, c.used_bytes(0) // MIB)
y = torch.arange(10_000).to("cuda:0").to("cuda:1")
print(torch.equal(y.cpu(), torch.arange(10_000)), y.device)
print(torch.cuda.Stream(device=1).device, torch.cuda.can_device_access_peer(0, 1))
"""
    told = run(script, "--gpus", "2")
    *numbers, is_equal, device, of_stream, has_access = told.split()
    assert (is_equal, device, of_stream, has_access) == ("True", "cuda:1", "cuda:1", "True")
    count, second, first = map(int, numbers)
    assert count == 2
    context = second - 16
    assert context > 0
    assert first in {0, context}, told


@pytest.mark.parametrize(("visible", "count"), [("1", 1), ("0,2", 2), ("", 0), ("0,7,1", 1), ("-1", 0)])
def test_cuda_visible_devices_decides_how_many_there_are(visible: str, count: int) -> None:
    """As the driver reads it: up to the first number that is no GPU of the three."""
    script = """
import ctypes
number = ctypes.c_int()
ctypes.CDLL(None).cudaGetDeviceCount(ctypes.byref(number))
print(number.value)
"""
    assert run(script, "--gpus", "3", CUDA_VISIBLE_DEVICES=visible).split() == [str(count)]


# ---- delayed copies ----

COPIES = """
import torch
MIB = 1 << 20
source = torch.ones(64 * MIB, dtype=torch.uint8, pin_memory=True)
there = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
back = torch.zeros(1, dtype=torch.uint8, pin_memory=True)
one, other = torch.cuda.Stream(), torch.cuda.Stream()
torch.cuda.synchronize()
with torch.cuda.stream(one): there.copy_(source, non_blocking=True)
if {waits}: other.wait_stream(one)
with torch.cuda.stream(other): back.copy_(there[-1:], non_blocking=True)
if {synchronizes}: other.synchronize()
print(back.item())
"""


@pytest.mark.parametrize(
    ("copies", "waits", "synchronizes", "seen"),
    [("delayed", True, True, 1), ("delayed", False, True, 0), ("delayed", True, False, 0), ("now", False, False, 1)],
)
def test_a_missing_wait_shows_the_old_bytes(copies: str, waits: bool, synchronizes: bool, seen: int) -> None:  # noqa: FBT001 - cases
    """64 MiB take 1.2 ms, one byte in the other direction 10 us.

    Without the wait it is read before it has come, and without the synchronization before it is back. When copies move
    bytes at once, neither is seen.
    """
    told = run(COPIES.format(waits=waits, synchronizes=synchronizes), "--copies", copies)
    assert told.split() == [str(seen)], told


def test_early_overwrite_by_the_host_is_copied() -> None:
    script = """
import torch
source = torch.ones(1 << 20, dtype=torch.uint8, pin_memory=True)
there = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
there.copy_(source, non_blocking=True)
source.fill_(7)
print(there[:1].cpu().item())
"""
    assert run(script, "--copies", "delayed").split() == ["7"]
    assert run(script, "--copies", "now").split() == ["1"]


# ---- clocks and processes ----

TIMED = """
import time
import torch
begin = time.perf_counter_ns()
first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
first.record()
torch.cuda._sleep(10 ** 9)
last.record()
last.synchronize()
passed = time.perf_counter_ns() - begin
print(first.elapsed_time(last), passed)
"""


def test_equal_programs_take_equal_times_on_the_virtual_clock() -> None:
    """10^9 cycles of 1.98 GHz are 505.05 ms, and 5 us more between the events, in which the kernel was issued."""
    told = run(TIMED)
    milliseconds, passed_ns = map(float, told.split())
    assert milliseconds == pytest.approx(1000 / 1.98 + 0.005, abs=0.001)
    assert passed_ns / 1e6 == pytest.approx(milliseconds, abs=0.1)
    assert run(TIMED) == told


def test_the_real_clock_really_waits() -> None:
    """An event is recorded once the host has come to it, so that a little of the host's own time is between them."""
    milliseconds, passed_ns = map(float, run(TIMED, "--clock", "real").split())
    assert milliseconds >= 1000 / 1.98 - 0.001
    assert passed_ns / 1e6 >= 1000 / 1.98


def test_workers_that_are_forked_load_data_for_a_process_that_uses_cuda() -> None:
    script = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.empty(3, device="cuda")
loader = DataLoader(TensorDataset(torch.arange(64.)), batch_size=8, num_workers=2, pin_memory=True)
print(sum(float(batch.cuda(non_blocking=True).cpu().sum()) for batch, in loader))
"""
    assert run(script).split() == [str(float(sum(range(64))))]


def test_a_forked_child_cannot_go_on_with_its_parents_gpu() -> None:
    """CUDA answers cudaErrorInitializationError, 3, to a child of a process that has used it."""
    script = """
import ctypes, os
address = ctypes.c_void_p()
allocate = lambda: ctypes.CDLL(None).cudaMalloc(ctypes.byref(address), ctypes.c_size_t(4))
assert allocate() == 0
if (child := os.fork()) == 0: os._exit(allocate())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(script).split() == ["3"]


def test_absent_calls_stand_in_the_log_once(tmp_path: Path) -> None:
    script = """
import ctypes
for _ in range(2): ctypes.CDLL(None).cudaMallocManaged(None, ctypes.c_size_t(4), 1)
"""
    run(script, "--log", str(tmp_path / "log"))
    assert (tmp_path / "log").read_text(encoding="utf-8").splitlines() == ["absent cudaMallocManaged"]


def test_a_setting_that_is_missing_is_named() -> None:
    """The first call of the runtime finds that its card's memory was taken out of the environment: error 3."""
    script = """
import ctypes
runtime = ctypes.CDLL(None)
runtime.cudaGetErrorString.restype = ctypes.c_char_p
print(runtime.cudaGetDeviceCount(ctypes.byref(ctypes.c_int())), runtime.cudaGetErrorString(3).decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={name: text for name, text in os.environ.items() if name != "VDNNSIM_PRETEND_MEMORY_BYTES"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "3 VDNNSIM_PRETEND_MEMORY_BYTES is not set\n", done.stderr


def test_the_runtime_is_of_the_cuda_that_pytorch_was_built_for() -> None:
    version = ctypes.c_int()
    assert ctypes.CDLL(None).cudaRuntimeGetVersion(ctypes.byref(version)) == 0
    assert torch.version.cuda is not None
    major, minor = map(int, torch.version.cuda.split("."))
    assert version.value == 1000 * major + 10 * minor
