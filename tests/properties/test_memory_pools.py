"""Invariants of every memory pool.

A list of (key, bytes) is read as a sequence of requests: a key that is not in use allocates the bytes, one that is
frees them.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory_requests import assert_no_overlap, assert_tells_the_truth, placed, rest_given_back, toggled
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.models import place
from vdnnsim.memory.requests import Placed, Request, round_up

# Of the pools that a machine's granule describes whole; those with segments or blocks have tests of their own.
MODELS = pytest.mark.parametrize("model", [MemoryModel.IDEAL, MemoryModel.BEST_FIT, MemoryModel.PLANNED])
WITH_ADDRESSES = pytest.mark.parametrize("model", [MemoryModel.BEST_FIT, MemoryModel.PLANNED])
ROOMY = 10**6


REQUESTS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 100)), max_size=24).map(toggled)
# The planned pool looks for neighbours in 128 stretches of the sequence; these are longer than one position each.
LONG_REQUESTS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=130, max_size=280).map(toggled)
GRANULES = st.sampled_from((1, 8, 64))


def granules_held(requests: Sequence[Request], granule_bytes: int) -> dict[int, int]:
    """Return what each key holds after the last request, counted in whole granules."""
    held: dict[int, int] = {}
    for request in requests:
        if request.nbytes is None:
            del held[request.key]
        else:
            held[request.key] = round_up(request.nbytes, granule_bytes)
    return held


def served(requests: Sequence[Request], model: MemoryModel, granule_bytes: int, capacity_bytes: int = ROOMY) -> Placed:
    return placed(place(requests, model, capacity_bytes=capacity_bytes, granule_bytes=granule_bytes))


@WITH_ADDRESSES
@given(requests=REQUESTS, granule_bytes=GRANULES)
def test_no_two_buffers_in_use_overlap(model: MemoryModel, requests: list[Request], granule_bytes: int) -> None:
    answer = served(requests, model, granule_bytes)
    assert_no_overlap(requests, answer)
    assert all(
        (offset or 0) + delta <= answer.pool_bytes for offset, delta in zip(answer.offsets, answer.deltas, strict=True)
    )


@WITH_ADDRESSES
@settings(max_examples=15)
@given(requests=LONG_REQUESTS)
def test_no_two_buffers_in_use_overlap_in_long_sequences(model: MemoryModel, requests: list[Request]) -> None:
    assert_no_overlap(requests, served(requests, model, granule_bytes=1))


@given(requests=REQUESTS, granule_bytes=GRANULES)
def test_the_peak_of_ideal_is_the_largest_sum_of_granules(requests: list[Request], granule_bytes: int) -> None:
    sums = [sum(granules_held(requests[:end], granule_bytes).values()) for end in range(len(requests) + 1)]

    assert served(requests, MemoryModel.IDEAL, granule_bytes).pool_bytes == max(sums)


@WITH_ADDRESSES
@given(requests=REQUESTS, granule_bytes=GRANULES)
def test_addresses_need_no_less_than_the_sum(model: MemoryModel, requests: list[Request], granule_bytes: int) -> None:
    least = served(requests, MemoryModel.IDEAL, granule_bytes)
    answer = served(requests, model, granule_bytes)

    assert answer.pool_bytes >= least.pool_bytes
    assert answer.deltas == least.deltas


@pytest.mark.parametrize("model", [MemoryModel.IDEAL, MemoryModel.PLANNED])
@given(requests=REQUESTS, granule_bytes=GRANULES)
def test_a_pool_as_large_as_needed_is_enough(model: MemoryModel, requests: list[Request], granule_bytes: int) -> None:
    """Not `best_fit`: in a smaller pool memory never used may be the best fit instead of a gap below."""
    answer = served(requests, model, granule_bytes)

    assert served(requests, model, granule_bytes, answer.pool_bytes) == answer


@MODELS
@given(requests=REQUESTS, granule_bytes=GRANULES)
def test_an_emptied_pool_is_one_piece(model: MemoryModel, requests: list[Request], granule_bytes: int) -> None:
    capacity_bytes = 2_000 * granule_bytes
    rest = [*rest_given_back(requests), Request(99, capacity_bytes)]
    answer = served([*requests, *rest], model, granule_bytes, capacity_bytes)

    assert answer.offsets[-1] == (None if model is MemoryModel.IDEAL else 0)
    assert sum(answer.deltas) == capacity_bytes


@MODELS
@given(requests=REQUESTS, granule_bytes=GRANULES, capacity_bytes=st.integers(0, 400))
def test_an_overflow_tells_the_truth(
    model: MemoryModel, requests: list[Request], granule_bytes: int, capacity_bytes: int
) -> None:
    """It names what is held, and no free piece is large enough for the request.

    The requests before it are served; a plan ahead would be another one without it.
    """
    answer = place(requests, model, capacity_bytes=capacity_bytes, granule_bytes=granule_bytes)
    if isinstance(answer, Placed):
        assert answer.pool_bytes <= capacity_bytes
        return
    before, asked_bytes = requests[: answer.position], requests[answer.position].nbytes or 0
    taken = served(before, MemoryModel.IDEAL, granule_bytes)
    assert_tells_the_truth(answer, requests, taken, capacity_bytes, round_up(asked_bytes, granule_bytes))
    if model is not MemoryModel.PLANNED:
        served(before, model, granule_bytes, capacity_bytes)
