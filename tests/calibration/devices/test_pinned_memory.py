"""Pinned memory where a process forks: a child has none of its pages, and gives none back."""

import ctypes
import faulthandler
import mmap
import os
import signal
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from calibration.devices import pinned_memory
from calibration.devices.pinned_memory import PinnedMemory

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
