"""Invariants of the two memory models whose pool is what the driver hands out: `cuda_malloc` and `mxnet`.

A list of (key, bytes) is read as a sequence of requests: a key that is not in use allocates the bytes, one that is
frees them. Sizes lie on both sides of 1 MiB, from which on a buffer has blocks of its own.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_requests import assert_tells_the_truth, placed, rest_given_back, toggled
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.cuda_malloc import BLOCK_BYTES, LARGEST_SHARED_BYTES
from vdnnsim.memory.models import place
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.units import KIB, MIB

MODELS = pytest.mark.parametrize("model", [MemoryModel.CUDA_MALLOC, MemoryModel.MXNET])
ROOMY = 2**40
GRANULE = 512


KEYS = st.integers(0, 7)
SMALL = st.one_of(st.integers(1, MIB), st.sampled_from([256 * KIB, 512 * KIB, 768 * KIB, MIB]))
LARGE = st.integers(MIB + 1, 12 * MIB)
REQUESTS = st.lists(st.tuples(KEYS, st.one_of(SMALL, LARGE)), max_size=40).map(toggled)


def answered(requests: Sequence[Request], model: MemoryModel, capacity_bytes: int = ROOMY) -> Placed | Overflow:
    return place(requests, model, capacity_bytes=capacity_bytes, granule_bytes=GRANULE)


def served(requests: Sequence[Request], model: MemoryModel, capacity_bytes: int = ROOMY) -> Placed:
    return placed(answered(requests, model, capacity_bytes))


@MODELS
@given(requests=REQUESTS)
def test_the_pool_is_whole_blocks_of_at_least_the_bytes_in_use(model: MemoryModel, requests: list[Request]) -> None:
    least, answer = served(requests, MemoryModel.IDEAL), served(requests, model)

    assert answer.deltas == least.deltas
    assert answer.offsets == (None,) * len(requests)
    assert answer.pool_bytes >= least.pool_bytes
    assert answer.pool_bytes % BLOCK_BYTES == 0


@MODELS
@given(requests=REQUESTS)
def test_a_pool_as_large_as_needed_is_enough(model: MemoryModel, requests: list[Request]) -> None:
    answer = served(requests, model)

    assert served(requests, model, answer.pool_bytes) == answer
    if answer.pool_bytes:
        assert isinstance(answered(requests, model, answer.pool_bytes - 1), Overflow)


@given(requests=REQUESTS)
def test_freed_blocks_are_returned_to_the_gpu(requests: list[Request]) -> None:
    pool_bytes = served(requests, MemoryModel.CUDA_MALLOC).pool_bytes
    rest = [*rest_given_back(requests), Request(99, pool_bytes)]

    assert served([*requests, *rest], MemoryModel.CUDA_MALLOC, pool_bytes).pool_bytes == pool_bytes


@MODELS
@given(requests=REQUESTS, end=st.integers(0, 40))
def test_more_requests_never_need_less(model: MemoryModel, requests: list[Request], end: int) -> None:
    """Of `mxnet`, for which small storages are packed anew, by whole sizes above 1 MiB alone."""
    if model is MemoryModel.MXNET:
        requests = [Request(each.key, each.nbytes and each.nbytes + LARGEST_SHARED_BYTES) for each in requests]

    assert served(requests[:end], model).pool_bytes <= served(requests, model).pool_bytes


@MODELS
@given(requests=REQUESTS, capacity_bytes=st.integers(0, 30 * MIB))
def test_an_overflow_tells_the_truth(model: MemoryModel, requests: list[Request], capacity_bytes: int) -> None:
    """It names what is held and what is free; the requests before are served, and with this one they are not."""
    answer = answered(requests, model, capacity_bytes)
    if isinstance(answer, Placed):
        assert answer.pool_bytes <= capacity_bytes
        return
    taken = served(requests[: answer.position], model, capacity_bytes)

    assert_tells_the_truth(answer, requests, taken, capacity_bytes, requests[answer.position].nbytes or 0)
    assert isinstance(answered(requests[: answer.position + 1], model, capacity_bytes), Overflow)
