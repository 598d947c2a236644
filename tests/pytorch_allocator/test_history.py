"""Histories in PyTorch's format, by hand, replayed on the model of the allocator."""

from typing import Any

import pytest

from tests.pytorch_allocator.history import Entry, History
from tests.pytorch_allocator.model import Divergence, GpuMemory
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.units import MIB

# Where a driver puts segments, neither in the order in which they are taken nor side by side.
HIGH, LOW = 7000 * MIB, 64 * MIB


def entry(action: str, address: int, mib: float, stream: int = 0) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": round(mib * MIB), "stream": stream}


def allocated(address: int, mib: float, stream: int = 0) -> Entry:
    return entry("alloc", address, mib, stream)


def freed(address: int, mib: float) -> list[Entry]:
    return [entry("free_requested", address, mib), entry("free_completed", address, mib)]


def replayed(entries: list[Entry], capacity_mib: float = 2**20, *, expandable: bool = False) -> History:
    history = History(GpuMemory(round(capacity_mib * MIB), round(capacity_mib * MIB), AllocatorSettings(expandable)))
    history.replay(entries)
    return history


# 8 get a segment of 20, 9 lie behind them; both go; 30 get a segment of their own, which lies lower.
PLAIN: list[Entry] = [
    entry("segment_alloc", HIGH, 20),
    allocated(HIGH, 8),
    allocated(HIGH + 8 * MIB, 9),
    *freed(HIGH, 8),
    *freed(HIGH + 8 * MIB, 9),
    entry("segment_alloc", LOW, 30),
    allocated(LOW, 30),
]


def test_a_history_by_the_rules_is_replayed_exactly() -> None:
    history = replayed(PLAIN)

    assert history.beside.divergence is None
    assert history.requests == 3
    assert history.beside.allocator.reserved_bytes == 50 * MIB


@pytest.mark.parametrize(
    ("place", "other", "expected"),
    [
        (0, entry("segment_alloc", HIGH, 22), Divergence(2, "reserved bytes", 22 * MIB, 20 * MIB)),
        (2, allocated(HIGH + 10 * MIB, 9), Divergence(3, "address", HIGH + 10 * MIB, HIGH + 8 * MIB)),
        (8, entry("oom", 0, 30), Divergence(9, "address", None, 20 * MIB)),
    ],
)
def test_a_history_by_other_rules_differs(place: int, other: Entry, expected: Divergence) -> None:
    """A segment of 22 for 8; a gap between two blocks; a refusal where there is room.

    The model's own address of the 30 is 20 MiB, behind its first segment.
    """
    entries = [*PLAIN[:place], other, *PLAIN[place + 1 :]]

    assert replayed(entries).beside.divergence == expected


def test_segments_released_while_there_was_room_were_emptied() -> None:
    """With unlimited memory only `empty_cache` releases the 20; 8 take a segment once more."""
    entries = [
        *PLAIN[:7],
        entry("segment_free", HIGH, 20),
        entry("segment_alloc", LOW, 20),
        allocated(LOW, 8),
    ]

    assert replayed(entries).beside.divergence is None


def test_a_block_that_is_freed_later_than_asked_waits() -> None:
    """30 are to be freed and wait for a stream; the next 30 take a segment, and those after the free take the block."""
    entries = [
        entry("segment_alloc", LOW, 30),
        allocated(LOW, 30),
        entry("free_requested", LOW, 30),
        entry("segment_alloc", HIGH, 30),
        allocated(HIGH, 30),
        entry("free_completed", LOW, 30),
        allocated(LOW, 30),
    ]

    assert replayed(entries).beside.divergence is None
    without_the_wait = [*entries[:3], entries[5], *entries[3:5], entries[6]]
    assert replayed(without_the_wait).beside.divergence is not None
