"""PyTorch's caching allocator, by hand; sizes in MiB unless stated otherwise."""

import pytest

from tests.memory_requests import placed, written
from vdnnsim.memory.caching import place_pytorch
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.memory.segments import segment_bytes
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.units import MIB

ROOMY = 2**40


def served(requests: list[Request], capacity_bytes: int = ROOMY) -> Placed:
    return placed(place_pytorch(requests, capacity_bytes, 512))


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (31 * MIB, 32 * MIB),
    ],
)
def test_a_segment_has_the_size_of_its_class(nbytes: int, expected: int) -> None:
    """2 MiB up to 1 MiB, 20 MiB below 10 MiB, then the request rounded up to 2 MiB."""
    assert segment_bytes(nbytes) == expected


@pytest.mark.parametrize(
    ("requests", "offsets", "deltas", "pool_mib"),
    [
        # Half a granule and one and a half take one and two, of one segment of 2.
        ("0.00024 0.0007", (0, 1 / 2048), (1 / 2048, 1 / 1024), 2),
        # 8 and 9 of a segment of 20 leave 3, more than 1 MiB and so free: 2 go there, and the last 1 MiB goes along.
        ("8 9 2", (0, 8, 17), (8, 9, 3), 20),
        # 11 get a segment of 12, and the rest, 1 MiB, is not more than 1 MiB: all 12 count as allocated.
        ("11", (0,), (12,), 12),
        # 14.5 are cut from 16 and leave 1.5, which the next 1.5 take.
        ("16 -0 14.5 1.5", (0, 14.5), (14.5, 1.5), 16),
        # A free block of 20 serves no request of 1, which takes a segment of the small pool.
        ("20 -0 1", (20,), (1,), 22),
        # Free are 30 at 0, 20 at 30 and 20 at 50. The smallest that is large enough wins, the lowest among equals.
        ("30 20 20 -0 -1 -2 20 20 20", (30, 50, 0), (20, 20, 20), 70),
        # 5, 5 and 9.5 fill a segment of 20, which is whole after all three came back: 19.5 take all of it.
        ("5 5 9.5 -0 -2 -1 19.5", (0,), (20,), 20),
        # Two free segments of 20 do not make 40: that is a third one.
        ("20 20 -0 -1 40", (40,), (40,), 80),
    ],
)
def test_blocks_are_cut_and_merged_within_segments(
    requests: str, offsets: tuple[float, ...], deltas: tuple[float, ...], pool_mib: int
) -> None:
    answer = served(written(requests))
    assert answer.offsets[-len(offsets) :] == tuple(each * MIB for each in offsets)
    assert answer.deltas[-len(deltas) :] == tuple(each * MIB for each in deltas)
    assert answer.pool_bytes == pool_mib * MIB


@pytest.mark.parametrize(
    ("requests", "capacity_mib", "expected"),
    [
        # 20 and 18 come back, 30 find neither a block nor room. Both segments go, and 30 fit; the most was 38.
        ("20 18 -0 -1 30", 40, 38 * MIB),
        # 5 hold a segment of 20, of which 15 are free. 22 do not fit though 35 are free: 15, and 20 beside.
        ("5 22", 40, Overflow(1, (0,), 35 * MIB, 20 * MIB)),
        # 19 MiB hold no segment of 20, which a request of 2 would be cut from.
        ("2", 19, Overflow(0, (), 19 * MIB, 0)),
    ],
)
def test_segments_go_back_to_a_gpu_without_room(requests: str, capacity_mib: int, expected: int | Overflow) -> None:
    answer = place_pytorch(written(requests), capacity_mib * MIB, 512)
    assert (answer.pool_bytes if isinstance(answer, Placed) else answer) == expected


def test_preallocated_memory_is_kept() -> None:
    """A segment of 12 MiB is free, which 14 MiB do not fit into, and 20 MiB are all that may be taken."""
    requests = written("12 -0 14")
    assert isinstance(place_pytorch(requests, 20 * MIB, 512), Placed)
    kept = place_pytorch(requests, 20 * MIB, 512, AllocatorSettings(preallocated=True))
    assert isinstance(kept, Overflow)
    assert kept.position == 2
