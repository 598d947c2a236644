"""Invariants of PyTorch's caching allocator under requests of several streams, with either kind of segments."""

from collections import deque
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vdnnsim.memory.caching import CachingAllocator
from vdnnsim.memory.expandable import ExpandableSegments
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.segments import Segments, WholeSegments
from vdnnsim.units import MIB

SIZES = st.sampled_from((1, 700, 4096, MIB, MIB + 1, 3 * MIB, 9 * MIB, 10 * MIB, 15 * MIB + 5, 40 * MIB))
STREAMS = range(3)
# A key without a block allocates one on the stream, which has finished its work or not; a block that a key has is used
# by the stream and freed.
EVENTS = st.lists(st.tuples(st.integers(0, 7), SIZES, st.sampled_from(STREAMS), st.booleans()), max_size=40)


@pytest.mark.parametrize("segments", [WholeSegments, ExpandableSegments])
@settings(max_examples=60)
@given(events=EVENTS, capacity_bytes=st.sampled_from((45 * MIB, 96 * MIB, 2**40)))
def test_blocks_are_disjoint_and_add_up_to_reserved_bytes(
    segments: Callable[[int, int], Segments], events: list[tuple[int, int, int, bool]], capacity_bytes: int
) -> None:
    """In use, waiting for a stream or free; never more is reserved than the capacity.

    Once all is freed and the cache is emptied, nothing is reserved.
    """
    model = CachingAllocator(segments(capacity_bytes, 512))
    held: dict[int, Block] = {}
    waiting: dict[int, deque[Block]] = {stream: deque() for stream in STREAMS}
    for key, nbytes, stream, done in events:
        if key in held:
            block = held.pop(key)
            model.record_use(block, stream)
            model.free(block)
            if model.waiting_blocks(stream) > len(waiting[stream]):
                waiting[stream].append(block)
        else:
            if done:
                model.reach(stream, model.waiting_blocks(stream))
            taken = model.take(round_up(nbytes, 512), stream)
            for each, blocks in waiting.items():
                while len(blocks) > model.waiting_blocks(each):
                    blocks.popleft()
            if taken is not None:
                assert taken.nbytes >= nbytes
                held[key] = taken
        pieces = sorted(
            [*held.values(), *(block for blocks in waiting.values() for block in blocks), *model.free_blocks]
        )
        assert all(low.start + low.nbytes <= high.start for low, high in pairwise(pieces))
        assert sum(piece.nbytes for piece in pieces) == model.reserved_bytes <= capacity_bytes
        assert sum(block.nbytes for block in held.values()) == model.allocated_bytes
    for block in held.values():
        model.free(block)
    model.empty_cache()
    assert model.free_blocks == []
    assert model.reserved_bytes == 0
