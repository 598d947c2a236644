"""PyTorch's caching allocator on several streams, by hand; sizes in MiB."""

import pytest

from tests.memory_requests import taken
from vdnnsim.memory.caching import CachingAllocator
from vdnnsim.memory.expandable import ExpandableSegments
from vdnnsim.memory.online import Block
from vdnnsim.memory.segments import WholeSegments
from vdnnsim.units import MIB


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
