"""Invariants of the memory pools: first of those of no framework, then TensorFlow's and PyTorch's.

A list of (key, bytes) is read as a sequence of requests: a key that is not in use allocates the bytes, one that is
frees them. The pool of `cuda_malloc` and `mxnet` is what the driver hands out: their sizes lie on both sides of 1 MiB,
from which on a buffer has blocks of its own.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory_requests import assert_no_overlap, assert_tells_the_truth, placed, rest_given_back, serving, toggled
from vdnnsim.memory.caching import CachingAllocator
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.cuda_malloc import BLOCK_BYTES, LARGEST_SHARED_BYTES
from vdnnsim.memory.expandable import ExpandableSegments
from vdnnsim.memory.models import place
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
from vdnnsim.memory.segments import Segments, WholeSegments
from vdnnsim.units import KIB, MIB

ROOMY = 2**40
GRANULES = st.sampled_from((1, 8, 64))
OF_GRANULES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 100)), max_size=24).map(toggled)
# The planned pool looks for neighbours in 128 stretches of the sequence; these are longer than one position each.
LONG_REQUESTS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=130, max_size=280).map(toggled)
SHARED = st.one_of(st.integers(1, MIB), st.sampled_from([256 * KIB, 512 * KIB, 768 * KIB, MIB]))
OF_BLOCKS = st.lists(st.tuples(st.integers(0, 7), st.one_of(SHARED, st.integers(MIB + 1, 12 * MIB))), max_size=40).map(
    toggled
)
# Requests, a granule, and a capacity that may not be enough.
SMALL = st.tuples(OF_GRANULES, GRANULES, st.integers(0, 400))
LARGE = st.tuples(OF_BLOCKS, st.just(512), st.integers(0, 30 * MIB))
ASKED = {
    **dict.fromkeys((MemoryModel.IDEAL, MemoryModel.BEST_FIT, MemoryModel.PLANNED), SMALL),
    **dict.fromkeys((MemoryModel.CUDA_MALLOC, MemoryModel.MXNET), LARGE),
}


def pools(*models: MemoryModel) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("model", models or ASKED)


def served(requests: Sequence[Request], model: MemoryModel, granule_bytes: int, capacity_bytes: int = ROOMY) -> Placed:
    return placed(place(requests, model, capacity_bytes, granule_bytes))


@pools(MemoryModel.BEST_FIT, MemoryModel.PLANNED)
@given(requests=OF_GRANULES, granule_bytes=GRANULES)
def test_no_two_buffers_in_use_overlap(model: MemoryModel, requests: list[Request], granule_bytes: int) -> None:
    answer = served(requests, model, granule_bytes)
    assert_no_overlap(requests, answer)
    assert all(
        (offset or 0) + delta <= answer.pool_bytes for offset, delta in zip(answer.offsets, answer.deltas, strict=True)
    )


@pools(MemoryModel.BEST_FIT, MemoryModel.PLANNED)
@settings(max_examples=15)
@given(requests=LONG_REQUESTS)
def test_no_two_buffers_in_use_overlap_in_long_sequences(model: MemoryModel, requests: list[Request]) -> None:
    assert_no_overlap(requests, served(requests, model, granule_bytes=1))


@given(requests=OF_GRANULES, granule_bytes=GRANULES)
def test_the_peak_of_ideal_is_the_largest_sum_of_granules(requests: list[Request], granule_bytes: int) -> None:
    held: dict[int, int] = {}
    sums = [0]
    for each in requests:
        held[each.key] = round_up(each.nbytes or 0, granule_bytes)
        sums.append(sum(held.values()))

    assert served(requests, MemoryModel.IDEAL, granule_bytes).pool_bytes == max(sums)


@pools()
@given(data=st.data())
def test_a_pool_needs_no_less_than_the_sum(model: MemoryModel, data: st.DataObject) -> None:
    requests, granule_bytes, _ = data.draw(ASKED[model])
    least = served(requests, MemoryModel.IDEAL, granule_bytes)
    answer = served(requests, model, granule_bytes)

    assert answer.pool_bytes >= least.pool_bytes
    assert answer.deltas == least.deltas
    if ASKED[model] is LARGE:
        assert answer.offsets == (None,) * len(requests)
        assert answer.pool_bytes % BLOCK_BYTES == 0


@pools(*(each for each in ASKED if each is not MemoryModel.BEST_FIT))
@given(data=st.data())
def test_a_pool_as_large_as_needed_is_enough(model: MemoryModel, data: st.DataObject) -> None:
    """Not `best_fit`: in a smaller pool memory never used may be the best fit instead of a gap below."""
    requests, granule_bytes, _ = data.draw(ASKED[model])
    answer = served(requests, model, granule_bytes)

    assert served(requests, model, granule_bytes, answer.pool_bytes) == answer
    if answer.pool_bytes:
        assert isinstance(place(requests, model, answer.pool_bytes - 1, granule_bytes), Overflow)


@pools(*(each for each in ASKED if each is not MemoryModel.MXNET))
@given(data=st.data())
def test_an_emptied_pool_is_one_piece(model: MemoryModel, data: st.DataObject) -> None:
    """Of `cuda_malloc` all blocks go back to the GPU, which has no more."""
    requests, granule_bytes, _ = data.draw(ASKED[model])
    needed_bytes = served(requests, model, granule_bytes).pool_bytes
    capacity_bytes = needed_bytes if model is MemoryModel.CUDA_MALLOC else 2_000 * granule_bytes
    rest = [*rest_given_back(requests), Request(99, capacity_bytes)]
    answer = served([*requests, *rest], model, granule_bytes, capacity_bytes)

    assert answer.offsets[-1] == (0 if model in (MemoryModel.BEST_FIT, MemoryModel.PLANNED) else None)
    assert sum(answer.deltas) == answer.pool_bytes == capacity_bytes


@pools(MemoryModel.CUDA_MALLOC, MemoryModel.MXNET)
@given(requests=OF_BLOCKS, end=st.integers(0, 40))
def test_more_requests_never_need_less(model: MemoryModel, requests: list[Request], end: int) -> None:
    """Of `mxnet`, for which small storages are packed anew, by whole sizes above 1 MiB alone."""
    if model is MemoryModel.MXNET:
        requests = [Request(each.key, each.nbytes and each.nbytes + LARGEST_SHARED_BYTES) for each in requests]

    assert served(requests[:end], model, 512).pool_bytes <= served(requests, model, 512).pool_bytes


@pools()
@given(data=st.data())
def test_an_overflow_tells_the_truth(model: MemoryModel, data: st.DataObject) -> None:
    """It names what is held, and no free piece is large enough for the request.

    The requests before it are served, and with it they are not; a plan ahead would be another one without it.
    """
    requests, granule_bytes, capacity_bytes = data.draw(ASKED[model])
    answer = place(requests, model, capacity_bytes, granule_bytes)
    if isinstance(answer, Placed):
        assert answer.pool_bytes <= capacity_bytes
        return
    before, asked_bytes = requests[: answer.position], requests[answer.position].nbytes or 0
    taken = served(before, MemoryModel.IDEAL, granule_bytes)
    # A block of the driver is short of what was asked for, not of that in granules.
    least_bytes = asked_bytes if ASKED[model] is LARGE else round_up(asked_bytes, granule_bytes)
    assert_tells_the_truth(answer, requests, taken, capacity_bytes, least_bytes)
    if model is not MemoryModel.PLANNED:
        assert served(before, model, granule_bytes, capacity_bytes).deltas == taken.deltas
        assert isinstance(place(requests[: answer.position + 1], model, capacity_bytes, granule_bytes), Overflow)


place_tensorflow, place_ideal = serving(MemoryModel.TENSORFLOW), serving(MemoryModel.IDEAL)
TENSORFLOW_SIZES = st.one_of(
    st.integers(1, 4 * MIB), st.sampled_from((256, 700 * KIB, MIB, 3 * MIB, 5 * MIB, 40 * MIB, 130 * MIB, 400 * MIB))
)
OF_TENSORFLOW = st.lists(st.tuples(st.integers(0, 7), TENSORFLOW_SIZES), max_size=40).map(toggled)
TENSORFLOW_CAPACITIES = st.one_of(st.integers(0, 3000 * MIB), st.integers(0, 100 * MIB), st.just(ROOMY))


def served_by_tensorflow(requests: Sequence[Request], capacity_bytes: int = ROOMY) -> Placed:
    return placed(place_tensorflow(requests, capacity_bytes, 1))


@settings(max_examples=200)
@given(OF_TENSORFLOW, TENSORFLOW_CAPACITIES)
def test_chunks_in_use_never_overlap_and_nothing_is_lost(requests: list[Request], capacity_bytes: int) -> None:
    requests = [*requests, *rest_given_back(requests)]
    answer = place_tensorflow(requests, capacity_bytes, 1)
    if isinstance(answer, Overflow):
        return
    assert_no_overlap(requests, answer)
    for request, delta in zip(requests, answer.deltas, strict=True):
        if request.nbytes is not None:
            asked = round_up(request.nbytes, 256)
            assert asked <= delta < min(2 * asked, asked + 128 * MIB)
    assert sum(answer.deltas) == 0
    assert answer.pool_bytes <= capacity_bytes


def with_a_limit_of(nbytes: int) -> int:
    """Return what must be free for a limit of whole blocks: the other way round what is left to the system."""
    if nbytes <= 225 * MIB:
        return nbytes
    if nbytes < (2048 - 225) * MIB:
        return nbytes + 225 * MIB
    return max(nbytes + 300 * MIB, -(-nbytes * 20 // 19))


@given(OF_TENSORFLOW)
def test_a_pool_needs_no_less_than_the_sum_and_serves_the_same_when_it_is_all_there_is(requests: list[Request]) -> None:
    least, answer = place_ideal(requests, ROOMY, 256), served_by_tensorflow(requests)

    assert isinstance(least, Placed)
    assert answer.pool_bytes >= least.pool_bytes
    assert answer.pool_bytes % (2 * MIB) == 0
    assert served_by_tensorflow(requests, with_a_limit_of(answer.pool_bytes)) == answer


@given(OF_TENSORFLOW)
def test_freed_chunks_merge_into_whole_regions(requests: list[Request]) -> None:
    """By how much the pool grows with each request is its regions; the first shows as 2 if it has 1.

    When nothing is in use any more each region serves a request of its size, the largest asked for first.
    """
    rest = rest_given_back(requests)
    pools = [served_by_tensorflow(requests[:end]).pool_bytes for end in range(len(requests) + 1)]
    regions = [after - before for before, after in pairwise(pools) if after > before]
    if requests and round_up(requests[0].nbytes or 0, 256) <= MIB:
        regions[0] = MIB
    again = [Request(100 + number, size) for number, size in enumerate(sorted(regions, reverse=True))]

    answer = served_by_tensorflow([*requests, *rest, *again])

    assert sorted(regions) == regions
    assert answer.deltas[len(requests) + len(rest) :] == tuple(sorted(regions, reverse=True))
    assert answer.pool_bytes == pools[-1]


@settings(max_examples=200)
@given(OF_TENSORFLOW, TENSORFLOW_CAPACITIES)
def test_an_overflow_of_tensorflow_tells_the_truth(requests: list[Request], capacity_bytes: int) -> None:
    """It names what is held and what is free; the requests before are served_by_tensorflow."""
    answer = place_tensorflow(requests, capacity_bytes, 1)
    if isinstance(answer, Placed):
        return
    taken = served_by_tensorflow(requests[: answer.position], capacity_bytes)

    asked_bytes = round_up(requests[answer.position].nbytes or 0, 256)
    assert_tells_the_truth(answer, requests, taken, capacity_bytes, asked_bytes)


STREAM_SIZES = st.sampled_from((1, 700, 4096, MIB, MIB + 1, 3 * MIB, 9 * MIB, 10 * MIB, 15 * MIB + 5, 40 * MIB))
STREAMS = range(3)
# A key without a block allocates one on the stream, which has finished its work or not; a block that a key has is used
# by the stream and freed.
EVENTS = st.lists(st.tuples(st.integers(0, 7), STREAM_SIZES, st.sampled_from(STREAMS), st.booleans()), max_size=40)


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
