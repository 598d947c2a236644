"""Traces of the allocator, in PyTorch's format, worked out by hand."""

from typing import Any

import pytest

from tests.pytorch_allocator.history import Entry
from tests.pytorch_allocator.trace import (
    ReservedMemory,
    compare_reserved,
    refuse_room_of_before,
    requests_of,
)
from vdnnsim.errors import DeviceError
from vdnnsim.memory.requests import Request

MIB = 2**20


def entry(action: str, addr: int, size: int) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "frames": []}


# 8 MiB get a segment of 20; 9 MiB lie behind them; both go; 30 MiB get a segment of their own.
TRACE: list[Entry] = [
    entry("segment_alloc", 0, 20 * MIB),
    entry("alloc", 0, 8 * MIB),
    entry("alloc", 8 * MIB, 9 * MIB),
    entry("free_requested", 0, 8 * MIB),
    entry("free_completed", 0, 8 * MIB),
    entry("free_requested", 8 * MIB, 9 * MIB),
    entry("free_completed", 8 * MIB, 9 * MIB),
    entry("segment_alloc", 64 * MIB, 30 * MIB),
    entry("alloc", 64 * MIB, 30 * MIB),
]


def test_allocations_and_completed_frees_are_the_requests() -> None:
    """A request is known by the place of its allocation in the trace: 1, 2 and 8."""
    assert requests_of(TRACE) == [
        Request(1, 8 * MIB),
        Request(2, 9 * MIB),
        Request(1, None),
        Request(2, None),
        Request(8, 30 * MIB),
    ]


def test_a_free_of_what_was_allocated_before_is_refused() -> None:
    with pytest.raises(DeviceError, match="frees 512 B that were allocated before it began, expected an empty"):
        compare_reserved([entry("free_completed", 5, 512), *TRACE], 2**40)


def test_a_trace_of_several_streams_is_refused() -> None:
    """Every stream has blocks of its own, so that what one frees serves no other."""
    other = {**entry("alloc", 90 * MIB, MIB), "stream": 7}
    with pytest.raises(DeviceError, match="has allocations of 2 streams, expected one"):
        requests_of([*TRACE, other])


def segment(stream: int, allocated_bytes: int, device: int = 0) -> dict[str, int]:
    return {"device": device, "stream": stream, "total_size": 20 * MIB, "allocated_size": allocated_bytes}


def test_room_beside_what_was_allocated_before_is_refused() -> None:
    """8 of 20 MiB are in use, so that 12 may serve the trace without a segment of its own."""
    with pytest.raises(DeviceError, match=r"began with 8\.00 MiB in use beside 12\.0 MiB that are free"):
        refuse_room_of_before([segment(0, 8 * MIB)], 0, TRACE)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([], id="nothing"),
        pytest.param([segment(0, 20 * MIB)], id="full"),
        pytest.param([segment(7, 8 * MIB)], id="of another stream"),
        pytest.param([segment(0, 8 * MIB, device=1)], id="of another GPU"),
    ],
)
def test_what_leaves_no_room_for_a_trace_is_none_of_its_business(before: list[dict[str, int]]) -> None:
    refuse_room_of_before(before, 0, TRACE)


def test_a_trace_by_the_rules_is_replayed_exactly() -> None:
    """Reserved memory rises with the first request to 20 MiB and with the fifth to 50."""
    assert compare_reserved(TRACE, 2**40) == [
        ReservedMemory(1, 20 * MIB, 20 * MIB),
        ReservedMemory(5, 50 * MIB, 50 * MIB),
    ]


def test_segments_given_back_make_room() -> None:
    """On a GPU of 40 MiB the segment of 20 goes before the one of 30 comes: the maximum is 30."""
    given_back = [*TRACE[:7], entry("segment_free", 0, 20 * MIB), *TRACE[7:]]

    assert compare_reserved(given_back, 40 * MIB)[-1] == ReservedMemory(5, 30 * MIB, 30 * MIB)


@pytest.mark.parametrize(("capacity_bytes", "replayed"), [(2**40, 50 * MIB), (25 * MIB, None)])
def test_a_trace_by_other_rules_is_told_apart(capacity_bytes: int, replayed: int | None) -> None:
    """A segment of 32 MiB for 30: the model takes 30. Where it would have found no room at all it says so."""
    other = [*TRACE[:7], entry("segment_alloc", 64 * MIB, 32 * MIB), TRACE[8]]

    assert compare_reserved(other, capacity_bytes)[-1] == ReservedMemory(5, 52 * MIB, replayed)
