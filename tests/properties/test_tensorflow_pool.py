"""Invariants of TensorFlow's BFC allocator."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory_requests import assert_no_overlap, assert_tells_the_truth, placed, rest_given_back, serving, toggled
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
from vdnnsim.units import KIB, MIB

ROOMY = 2**40
place_tensorflow, place_ideal = serving(MemoryModel.TENSORFLOW), serving(MemoryModel.IDEAL)
SIZES = st.one_of(
    st.integers(1, 4 * MIB), st.sampled_from((256, 700 * KIB, MIB, 3 * MIB, 5 * MIB, 40 * MIB, 130 * MIB, 400 * MIB))
)
REQUESTS = st.lists(st.tuples(st.integers(0, 7), SIZES), max_size=40).map(toggled)
CAPACITIES = st.one_of(st.integers(0, 3000 * MIB), st.integers(0, 100 * MIB), st.just(ROOMY))


def served(requests: Sequence[Request], capacity_bytes: int = ROOMY) -> Placed:
    return placed(place_tensorflow(requests, capacity_bytes, 1))


@settings(max_examples=200)
@given(REQUESTS, CAPACITIES)
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


@given(REQUESTS)
def test_a_pool_needs_no_less_than_the_sum_and_serves_the_same_when_it_is_all_there_is(requests: list[Request]) -> None:
    least, answer = place_ideal(requests, ROOMY, 256), served(requests)

    assert isinstance(least, Placed)
    assert answer.pool_bytes >= least.pool_bytes
    assert answer.pool_bytes % (2 * MIB) == 0
    assert served(requests, with_a_limit_of(answer.pool_bytes)) == answer


@given(REQUESTS)
def test_freed_chunks_merge_into_whole_regions(requests: list[Request]) -> None:
    """By how much the pool grows with each request is its regions; the first shows as 2 if it has 1.

    When nothing is in use any more each region serves a request of its size, the largest asked for first.
    """
    rest = rest_given_back(requests)
    pools = [served(requests[:end]).pool_bytes for end in range(len(requests) + 1)]
    regions = [after - before for before, after in pairwise(pools) if after > before]
    if requests and round_up(requests[0].nbytes or 0, 256) <= MIB:
        regions[0] = MIB
    again = [Request(100 + number, size) for number, size in enumerate(sorted(regions, reverse=True))]

    answer = served([*requests, *rest, *again])

    assert sorted(regions) == regions
    assert answer.deltas[len(requests) + len(rest) :] == tuple(sorted(regions, reverse=True))
    assert answer.pool_bytes == pools[-1]


@settings(max_examples=200)
@given(REQUESTS, CAPACITIES)
def test_an_overflow_tells_the_truth(requests: list[Request], capacity_bytes: int) -> None:
    """It names what is held and what is free; the requests before are served."""
    answer = place_tensorflow(requests, capacity_bytes, 1)
    if isinstance(answer, Placed):
        return
    taken = served(requests[: answer.position], capacity_bytes)

    asked_bytes = round_up(requests[answer.position].nbytes or 0, 256)
    assert_tells_the_truth(answer, requests, taken, capacity_bytes, asked_bytes)
