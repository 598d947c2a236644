"""MXNet's storages, by hand; sizes in MiB unless stated otherwise."""

import pytest

from tests.memory_requests import serving, written
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.units import KIB, MIB

GRANULE = 512
ROOMY = 2**40
place_cuda_malloc, place_mxnet = serving(MemoryModel.CUDA_MALLOC), serving(MemoryModel.MXNET)


def pool_bytes(requests: list[Request]) -> int:
    answer = place_mxnet(requests, ROOMY, GRANULE)
    assert isinstance(answer, Placed)
    return answer.pool_bytes


@pytest.mark.parametrize(
    ("nbytes", "expected_mib"),
    [
        # 4 MiB are 16 * 256 KiB; one byte less is too far away, and what is new takes a block of 2 MiB.
        (4 * MIB, 4),
        (MIB // 4, 4),
        (MIB // 4 - 1, 6),
        # It grows to 16 times its size. A sixteenth is rounded down: of 64 MiB + 15 B still 4 MiB; then 66 beside 4.
        (64 * MIB, 64),
        (64 * MIB + 15, 66),
        (64 * MIB + 16, 70),
    ],
)
def test_a_free_storage_of_4_mib_serves_up_to_16_times_less_or_more(nbytes: int, expected_mib: int) -> None:
    assert pool_bytes([*written("4 -0"), Request(1, nbytes)]) == expected_mib * MIB


@pytest.mark.parametrize(
    ("requests", "expected_mib"),
    [
        # 4 and 6 at once, both given back: 10 remain allocated, and 6 + 4 more take them.
        ("4 6 -0 -1", 10),
        ("4 6 -0 -1 6 4", 10),
        # Free: 8, 12 and 20. 10 take the 12, the smallest that is large enough, so that 20 and 8 find theirs.
        ("8 12 20 -0 -1 -2 10 20 8", 40),
        # Free: 8 and 20. 10 take the 20. 12 let the 8 grow: 32; had the 8 grown to 10, it would be 10 and 20.
        ("8 20 -0 -1 10 12", 32),
        # Free: 4 and 8. 10 let the 8 grow, the largest of the too small; then 4 take the 4.
        ("4 8 -0 -1 10 4", 14),
        # Free: 2 and 100. 6 may take up to 96, so the 2 grows.
        ("2 100 -0 -1 6", 106),
        # 4 grow to 10 and are free again: 10 take them, and nothing is new.
        ("4 -0 10 -1 10", 10),
    ],
)
def test_which_storage_a_request_takes(requests: str, expected_mib: int) -> None:
    assert pool_bytes(written(requests)) == expected_mib * MIB


def test_storages_are_allocated_the_largest_first() -> None:
    """Of 2048 KiB, 1000 + 1000 and 700 + 500 + 400 + 400 fill two blocks; as they are asked for, it would be three.

    Then 400, 400 and 1000 share the first, 700 and 500 the second, and neither has 1000 left.
    """
    requests = [Request(key, size * KIB) for key, size in enumerate((400, 400, 1000, 700, 500, 1000))]
    one_by_one = place_cuda_malloc(requests, ROOMY, GRANULE)
    assert isinstance(one_by_one, Placed)
    assert (one_by_one.pool_bytes, pool_bytes(requests)) == (6 * MIB, 4 * MIB)
    # 512, 512 and 1024 KiB fill a block. Each of the first, given back, grows to 1024 KiB: three take two blocks. Had
    # they been allocated as they were asked for, 1024 would find no gap beside 1024 and 512.
    assert pool_bytes(written("0.5 0.5 1")) == 2 * MIB
    assert pool_bytes(written("0.5 0.5 1 -0 -1 1 1")) == 4 * MIB


@pytest.mark.parametrize(
    ("requests", "capacity_mib", "expected"),
    [
        # 6, given back, grow to 8. 4 more make 12 of 10: 2 are left, and nothing that is free could grow.
        ("6 -0 8 4 1", 10, Overflow(3, (1,), 2 * MIB, 2 * MIB)),
        # 4 and 4, the first given back: 8 would make it 12 of 10. 6 are free, 4 of them in that storage.
        ("4 4 -0 8", 10, Overflow(3, (1,), 6 * MIB, 4 * MIB)),
        # 20 are given back, and 1 is too small for them: it finds nothing, although nothing is in use.
        ("20 -0 1", 20, Overflow(2, (), 20 * MIB, 0)),
    ],
)
def test_a_storage_beyond_the_capacity_overflows(requests: str, capacity_mib: int, expected: Overflow) -> None:
    assert place_mxnet(written(requests), capacity_mib * MIB, GRANULE) == expected


@pytest.mark.parametrize(("nbytes", "pool_mib"), [(16, 2), (17, 4)])
def test_sizes_are_compared_as_asked_and_allocated_in_granules(nbytes: int, pool_mib: int) -> None:
    """Granule 2 MiB. 16 B are 16 times 1 B, 17 B are too many, although both are one granule."""
    answer = place_mxnet([Request(0, nbytes), Request(0, None), Request(1, 1)], ROOMY, 2 * MIB)
    assert answer == Placed((None,) * 3, (2 * MIB, -2 * MIB, 2 * MIB), pool_bytes=pool_mib * MIB)
