"""Invariants of the memory pools; those of PyTorch and TensorFlow have tests of their own.

A list of (key, bytes) is read as a sequence of requests: a key that is not in use allocates the bytes, one that is
frees them. The pool of `cuda_malloc` and `mxnet` is what the driver hands out: their sizes lie on both sides of 1 MiB,
from which on a buffer has blocks of its own.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory_requests import assert_no_overlap, assert_tells_the_truth, placed, rest_given_back, toggled
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.cuda_malloc import BLOCK_BYTES, LARGEST_SHARED_BYTES
from vdnnsim.memory.models import place
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
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
