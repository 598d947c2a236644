import pytest

from tests.memory_requests import serving
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.memory.storages import place_mxnet
from vdnnsim.units import KIB, MIB

GRANULE = 512
ROOMY = 2**40
place_cuda_malloc = serving(MemoryModel.CUDA_MALLOC)


def in_mib(*toggles: tuple[int, int | None]) -> list[Request]:
    return [Request(key, None if size is None else size * MIB) for key, size in toggles]


def pool_bytes(requests: list[Request]) -> int:
    answer = place_mxnet(requests, ROOMY, GRANULE)
    assert isinstance(answer, Placed)
    return answer.pool_bytes


def after_one_of_4_mib(nbytes: int) -> int:
    """Return the pool of 4 MiB, given back, and then nbytes."""
    return pool_bytes([Request(0, 4 * MIB), Request(0, None), Request(1, nbytes)])


def test_a_request_takes_what_is_free_and_of_its_size() -> None:
    """10, given back, 10, given back: one storage. Bytes in use come and go, the storage stays."""
    requests = in_mib((0, 10), (0, None), (1, 10), (1, None))

    assert place_mxnet(requests, ROOMY, GRANULE) == Placed(
        (None,) * 4, (10 * MIB, -10 * MIB, 10 * MIB, -10 * MIB), pool_bytes=10 * MIB
    )


def test_what_lives_together_has_storages_of_its_own() -> None:
    """4 and 6 at once, both given back: 10 remain allocated, and 6 + 4 more take them."""
    both = in_mib((0, 4), (1, 6), (0, None), (1, None))

    assert pool_bytes(both) == 10 * MIB
    assert pool_bytes([*both, *in_mib((2, 6), (3, 4))]) == 10 * MIB


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [(4 * MIB, 4 * MIB), (MIB // 4, 4 * MIB), (MIB // 4 - 1, 6 * MIB)],
)
def test_a_storage_may_be_16_times_as_large(nbytes: int, expected: int) -> None:
    """4 MiB are 16 * 256 KiB; one byte less is too far away, and what is new takes a block of 2 MiB."""
    assert after_one_of_4_mib(nbytes) == expected


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [(64 * MIB, 64 * MIB), (64 * MIB + 15, 66 * MIB), (64 * MIB + 16, 70 * MIB)],
)
def test_a_storage_may_grow_to_16_times_its_size(nbytes: int, expected: int) -> None:
    """A sixteenth is a whole number, rounded down: of 64 MiB + 15 B still 4 MiB. One byte more takes 66 beside 4."""
    assert after_one_of_4_mib(nbytes) == expected


def test_the_smallest_that_is_large_enough_is_taken() -> None:
    """Free: 8, 12 and 20. 10 take the 12, so that 20 and 8 find theirs: 40 in all."""
    free = in_mib((0, 8), (1, 12), (2, 20), (0, None), (1, None), (2, None))

    assert pool_bytes([*free, *in_mib((3, 10), (4, 20), (5, 8))]) == 40 * MIB


def test_one_that_is_large_enough_goes_before_one_that_would_grow() -> None:
    """Free: 8 and 20. 10 take the 20. 12 let the 8 grow: 32; had the 8 grown to 10, it would be 10 and 20."""
    free = in_mib((0, 8), (1, 20), (0, None), (1, None))

    assert pool_bytes([*free, *in_mib((2, 10), (3, 12))]) == 32 * MIB


def test_of_those_that_are_too_small_the_largest_grows() -> None:
    """Free: 4 and 8. 10 let the 8 grow, then 4 take the 4: 14; had the 4 grown, it would be 8 and 10."""
    free = in_mib((0, 4), (1, 8), (0, None), (1, None))

    assert pool_bytes([*free, *in_mib((2, 10), (3, 4))]) == 14 * MIB


def test_where_the_larger_one_is_too_large_a_smaller_one_grows() -> None:
    """Free: 2 and 100. 6 may take up to 96, so the 2 grows: 106."""
    assert pool_bytes(in_mib((0, 2), (1, 100), (0, None), (1, None), (2, 6))) == 106 * MIB


def test_a_storage_that_has_grown_is_found_at_its_new_size() -> None:
    """4 grow to 10 and are free again: 10 take them, and nothing is new."""
    assert pool_bytes(in_mib((0, 4), (0, None), (1, 10), (1, None), (2, 10))) == 10 * MIB


def test_storages_are_allocated_the_largest_first() -> None:
    """Of 2048 KiB, 1000 + 1000 and 700 + 500 + 400 + 400 fill two blocks; as they are asked for, it would be three.

    Then 400, 400 and 1000 share the first, 700 and 500 the second, and neither has 1000 left.
    """
    requests = [Request(key, size * KIB) for key, size in enumerate((400, 400, 1000, 700, 500, 1000))]
    one_by_one = place_cuda_malloc(requests, ROOMY, GRANULE)

    assert isinstance(one_by_one, Placed)
    assert one_by_one.pool_bytes == 6 * MIB
    assert pool_bytes(requests) == 4 * MIB


def test_storages_are_allocated_at_their_final_size() -> None:
    """512, 512 and 1024 KiB fill a block. Each of the first, given back, grows to 1024 KiB: three take two blocks.

    Had they been allocated as they were asked for, 1024 would find no gap beside 1024 and 512.
    """
    first = [Request(0, 512 * KIB), Request(1, 512 * KIB), Request(2, MIB)]
    grown = [Request(0, None), Request(1, None), Request(3, MIB), Request(4, MIB)]

    assert pool_bytes(first) == 2 * MIB
    assert pool_bytes([*first, *grown]) == 4 * MIB


def test_a_new_storage_beyond_the_capacity_overflows() -> None:
    """6, given back, grow to 8. 4 more make 12 of 10: 2 are left, and nothing that is free could grow."""
    requests = in_mib((0, 6), (0, None), (1, 8), (2, 4), (3, 1))

    assert place_mxnet(requests, 10 * MIB, GRANULE) == Overflow(
        3, held=(1,), free_bytes=2 * MIB, largest_free_bytes=2 * MIB
    )


def test_a_storage_that_grows_beyond_the_capacity_overflows() -> None:
    """4 and 4, the first given back: 8 would make it 12 of 10. 6 are free, 4 of them in that storage."""
    requests = in_mib((0, 4), (1, 4), (0, None), (2, 8))

    assert place_mxnet(requests, 10 * MIB, GRANULE) == Overflow(
        3, held=(1,), free_bytes=6 * MIB, largest_free_bytes=4 * MIB
    )


def test_storages_that_are_free_take_room_from_others() -> None:
    """20 are given back, and 1 is too small for them: of 20 it finds nothing, although nothing is in use."""
    assert place_mxnet(in_mib((0, 20), (0, None), (1, 1)), 20 * MIB, GRANULE) == Overflow(2, (), 20 * MIB, 0)


def test_sizes_are_compared_as_asked_and_allocated_in_granules() -> None:
    """Granule 2 MiB. 16 B are 16 times 1 B, 17 B are too many, although both are one granule."""
    after_16 = place_mxnet([Request(0, 16), Request(0, None), Request(1, 1)], ROOMY, 2 * MIB)
    after_17 = place_mxnet([Request(0, 17), Request(0, None), Request(1, 1)], ROOMY, 2 * MIB)

    assert after_16 == Placed((None,) * 3, (2 * MIB, -2 * MIB, 2 * MIB), pool_bytes=2 * MIB)
    assert after_17 == Placed((None,) * 3, (2 * MIB, -2 * MIB, 2 * MIB), pool_bytes=4 * MIB)
