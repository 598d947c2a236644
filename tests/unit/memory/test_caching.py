"""PyTorch's caching allocator, by hand; on one stream and on several; sizes in MiB unless stated otherwise.

At last it is brought into the state of segments that a process has.
"""

from itertools import count

import pytest

from tests.memory_requests import placed, taken, written
from vdnnsim.memory.caching import CachingAllocator, place_pytorch, pytorch_allocator
from vdnnsim.memory.expandable import ExpandableSegments
from vdnnsim.memory.live_segments import LiveBlock, LiveSegment, LiveSegments, Use
from vdnnsim.memory.online import Block, serve
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.memory.segments import WholeSegments, segment_bytes
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


def allocator(mib: float = 2**20) -> CachingAllocator:
    return CachingAllocator(WholeSegments(round(mib * MIB), 512))


def freed_while_used(pool: CachingAllocator, mib: float, *streams: int) -> Block:
    """Return a block that was freed while other streams used it."""
    block = taken(pool, mib)
    for stream in streams:
        pool.record_use(block, stream)
    pool.free(block)
    return block


def test_a_block_serves_its_own_stream_until_its_segment_is_released() -> None:
    """30 come back on stream 0: stream 1 takes a segment of its own, stream 0 takes the block again."""
    pool = allocator()
    pool.free(taken(pool, 30))
    assert taken(pool, 30, stream=1) == Block(30 * MIB, 30 * MIB)
    assert taken(pool, 30, stream=0) == Block(0, 30 * MIB)
    assert pool.reserved_bytes == 60 * MIB
    # 70: 30 and 40 are free on two streams; 60 for a third go where both have been.
    pool = allocator(70)
    for mib, stream in ((30, 0), (40, 1)):
        pool.free(taken(pool, mib, stream))
    assert taken(pool, 60, stream=2).nbytes == 60 * MIB
    assert pool.reserved_bytes == 60 * MIB
    assert pool.pool_bytes == 70 * MIB
    # 20 and 20 are free, the later one since longer: the earlier one is taken.
    pool = allocator()
    older, newer = taken(pool, 20), taken(pool, 20)
    pool.free(newer)
    pool.free(older)
    assert taken(pool, 20) == older


def test_a_block_waits_for_every_other_stream_that_uses_it() -> None:
    """It is not allocated any more, but the next 30 take a new segment. Once the stream is there, others take it."""
    pool = allocator()
    block = freed_while_used(pool, 30, 1)
    assert pool.allocated_bytes == 0
    assert taken(pool, 30).start == 30 * MIB
    pool.reach(1, 1)
    assert taken(pool, 30) == block
    # Streams 1 and 2 use it; 1 alone is not enough.
    pool = allocator()
    block = freed_while_used(pool, 30, 1, 2)
    pool.reach(1, 1)
    assert taken(pool, 30) != block
    assert (pool.waiting_blocks(1), pool.waiting_blocks(2)) == (0, 1)
    pool.reach(2, 1)
    assert taken(pool, 30) == block
    # Two blocks wait for stream 1, which has come past the first: 30 are there again, 40 are not.
    pool = allocator()
    first, second = freed_while_used(pool, 30, 1), freed_while_used(pool, 40, 1)
    pool.reach(1, 1)
    assert taken(pool, 30) == first
    assert taken(pool, 40) != second
    # Use by its own stream does not make a block wait.
    pool = allocator()
    block = taken(pool, 30, stream=3)
    pool.record_use(block, 3)
    pool.free(block)
    assert taken(pool, 30, stream=3) == block


def test_before_it_gives_up_it_waits_for_all_streams() -> None:
    """50: 30 wait for stream 1. 40 find no room until it is there and the 30 go back to the GPU."""
    pool = allocator(50)
    freed_while_used(pool, 30, 1)
    assert taken(pool, 40).nbytes == 40 * MIB
    assert pool.waiting_blocks(1) == 0
    # 30, in one segment: 10 are in use, 20 wait for stream 1. 20 are refused, for the GPU has nothing left. While it
    # looked, the 20 came back, and the next request has them. So it is in PyTorch: issue 189504.
    pool = allocator(30)
    pool.free(taken(pool, 30))
    assert taken(pool, 10).start == 0
    waiting = freed_while_used(pool, 20, 1)
    assert pool.take(20 * MIB) is None
    assert taken(pool, 20) == waiting


def test_an_emptied_cache_holds_what_is_in_use_alone() -> None:
    """30 are in use, 40 are free, 50 wait for a stream, for which `empty_cache` waits."""
    pool = allocator()
    taken(pool, 30)
    free = taken(pool, 40)
    freed_while_used(pool, 50, 1)
    pool.free(free)
    pool.empty_cache()

    assert pool.reserved_bytes == pool.allocated_bytes == 30 * MIB
    assert pool.free_blocks == []


@pytest.mark.parametrize("stream", [0, 5])
def test_streams_that_grow_have_segments_of_their_own(stream: int) -> None:
    """5 take a page of 20 on either stream."""
    pool = CachingAllocator(ExpandableSegments(2**40, 512))
    taken(pool, 5, stream=1)
    taken(pool, 5, stream)

    assert pool.reserved_bytes == 40 * MIB


KIB = 1024


def block(nbytes: int, use: Use) -> LiveBlock:
    return LiveBlock(nbytes, nbytes, use)


LIVE = LiveSegments(
    (
        LiveSegment(
            is_small=False,
            blocks=(block(12 * MIB, Use.PLANNED), block(8 * MIB, Use.FREE)),
        ),
        LiveSegment(
            is_small=True,
            blocks=(block(KIB, Use.PLANNED), block(1536 * KIB, Use.FREE), block(511 * KIB, Use.OTHER)),
        ),
        LiveSegment(
            is_small=False,
            blocks=(block(6 * MIB, Use.FREE), block(12 * MIB, Use.OTHER), block(2 * MIB, Use.PLANNED)),
        ),
    ),
    has_states=False,
)
KEYS = {4: 12 * MIB, 7: KIB - 300}
"""Of two of three planned blocks; that of 2 MiB was of a tensor that the plan does not count."""


def requests() -> list[Request]:
    return LIVE.requests(KEYS, count(100), 512)


def test_blocks_lie_as_in_the_process_and_all_others_are_free() -> None:
    """Segments of 20, 2 and 20 MiB. In the third others hold 12 MiB, with 6 free before them and 2 behind."""
    pool = pytorch_allocator(42 * MIB, 512)
    placed(serve(requests(), pool, 42 * MIB, 512))
    assert pool.ranges == [(0, 20 * MIB), (20 * MIB, 2 * MIB), (22 * MIB, 20 * MIB)]
    assert pool.free_blocks == [
        Block(12 * MIB, 8 * MIB),
        Block(20 * MIB + KIB, 1536 * KIB),
        Block(22 * MIB, 6 * MIB),
        Block(40 * MIB, 2 * MIB),
    ]


def test_known_buffers_have_the_blocks_of_their_size() -> None:
    """The request of 724 B has 1 KiB."""
    asked = requests()
    offsets = placed(place_pytorch(asked, 42 * MIB, 512)).offsets
    found = {each.key: at for each, at in zip(asked, offsets, strict=True) if each.key in KEYS}
    assert found == {4: 0, 7: 20 * MIB}


def test_the_next_request_takes_the_smallest_free_block_that_holds_it() -> None:
    """5 MiB the 6 of the third segment; before 8 of the first, which is older."""
    offsets = placed(place_pytorch([*requests(), Request(1, 5 * MIB)], 42 * MIB, 512)).offsets
    assert offsets[-1] == 22 * MIB


def test_only_blocks_of_others_are_beside_the_plan() -> None:
    assert LIVE.other_bytes == 12 * MIB + 511 * KIB
