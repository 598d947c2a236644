"""The rules of TensorFlow's BFC allocator, each worked out by hand; sizes in MiB where not said otherwise.

A GPU of 225 or less leaves nothing to the system, so that its limit is all it has.
"""

import pytest

from tests.memory_requests import give, serving, take
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
from vdnnsim.units import MIB

ROOMY = 2**40
place_tensorflow = serving(MemoryModel.TENSORFLOW)


def served(requests: list[Request], capacity_bytes: int = ROOMY, granule_bytes: int = 1) -> Placed:
    answer = place_tensorflow(requests, capacity_bytes, granule_bytes)
    assert isinstance(answer, Placed)
    return answer


def refused(requests: list[Request], capacity_mib: float) -> Overflow:
    answer = place_tensorflow(requests, round(capacity_mib * MIB), 1)
    assert isinstance(answer, Overflow)
    return answer


def region_of(mib: float) -> list[Request]:
    """A region that is free as a whole, left by a request of its size."""
    return [take(99, mib), give(99)]


def test_sizes_are_rounded_up_to_256_b() -> None:
    """1 B and 257 B take 256 B and 512 B, one after the other, of a region of 1 MiB; the driver gives a block of 2."""
    assert served([Request(0, 1), Request(1, 257)]) == Placed((0, 256), (256, 512), 2 * MIB)


def test_a_granule_of_the_machine_that_is_larger_counts_as_well() -> None:
    assert served([Request(0, 1), Request(1, 513)], granule_bytes=512).deltas == (512, 1024)


def test_a_chunk_twice_as_large_is_split() -> None:
    """4 of a free 8 leave 4, which the next request takes."""
    answer = served([*region_of(8), take(0, 4), take(1, 4)])

    assert answer.offsets[2:] == (0, 4 * MIB)
    assert answer.pool_bytes == 8 * MIB


def test_a_chunk_less_than_twice_as_large_is_left_whole() -> None:
    """4 MiB and 256 B have all of the free 8, and the next request finds nothing: the region after it has 8 as well."""
    answer = served([*region_of(8), Request(0, 4 * MIB + 256), take(1, 3)])

    assert answer.deltas[2] == 8 * MIB
    assert answer.pool_bytes == 16 * MIB


@pytest.mark.parametrize(("nbytes", "delta"), [(384 * MIB, 384 * MIB), (384 * MIB + 256, 512 * MIB)])
def test_a_chunk_of_which_128_mib_would_be_wasted_is_split(nbytes: int, delta: int) -> None:
    """A free 512 is less than twice as large; 384 leave 128, 256 B more do not."""
    assert served([*region_of(512), Request(0, nbytes)]).deltas[2] == delta


# A region of 8: 0 at 0 (2), 1 at 2 (1), 2 at 3 (2), 3 at 5 (1), and 2 free at 6.
CUT = [*region_of(8), take(0, 2), take(1, 1), take(2, 2), take(3, 1)]


def test_the_smallest_chunk_that_is_large_enough_wins() -> None:
    """Free: 2 at 0 and, merged, 3 at 5. 1.5 fit into both and take the smaller; 2.5 fit into the larger alone."""
    freed = [*CUT, give(0), give(3)]

    assert served([*freed, take(4, 1.5)]).offsets[-1] == 0
    assert served([*freed, take(4, 2.5)]).offsets[-1] == 5 * MIB


def test_the_lowest_of_equal_chunks_wins() -> None:
    """Free: 2 at 0, at 3 and at 6."""
    answer = served([*CUT, give(2), give(0), take(4, 2), take(5, 2), take(6, 2)])

    assert answer.offsets[-3:] == (0, 3 * MIB, 6 * MIB)


def test_a_chunk_merges_with_both_neighbours_when_it_is_given_back() -> None:
    """1 is the last to come back, between 2 and 5 that are free: all 8 are one chunk again."""
    answer = served([*CUT, give(0), give(2), give(3), give(1), take(4, 8)])

    assert answer.offsets[-1] == 0
    assert answer.pool_bytes == 8 * MIB


def test_chunks_of_two_regions_never_merge() -> None:
    """Two free regions of 8 do not make 16: that is a third one."""
    assert served([take(0, 8), take(1, 8), give(0), give(1), take(2, 16)]).pool_bytes == 32 * MIB


@pytest.mark.parametrize(
    ("free_mib", "limit_mib"),
    [
        (224, 224),
        (226, 1),
        (1024, 799),
        (2047, 1822),
        (2048, 1748),
        (6000, 5700),
        (6020, 5719),
        (24000, 22800),
    ],
)
def test_the_limit_is_what_is_free_less_what_the_system_keeps(free_mib: int, limit_mib: int) -> None:
    """225 below 2048, where there is as much, then 300 up to 6000 and a twentieth beyond: of 6020 that is 301.

    A request for the limit has a region of it, in blocks of 2; 256 B more do not fit, though the GPU has them.
    """
    limit = limit_mib * MIB

    assert served([Request(0, limit)], free_mib * MIB).pool_bytes == round_up(limit, 2 * MIB)
    assert refused([Request(0, limit + 256)], free_mib) == Overflow(0, (), free_mib * MIB, limit)


def test_where_the_system_would_keep_all_it_keeps_nothing() -> None:
    assert served([take(0, 1)], 225 * MIB).pool_bytes == 2 * MIB


def test_the_blocks_of_regions_fit_into_what_the_system_keeps() -> None:
    """6144: a limit of 5836.8. Regions of 1, 2 to 2048 are 4095 in all and take 4096; the last has the other 1741.8.

    It holds 1741 buffers of 1, in 871 blocks, the last of which has 1.8, for that is not twice as much. So the one
    after them finds what is left to the system, and no piece of it: 307.2 and what is less than a chunk.
    """
    requests = [take(key, 1) for key in range(5837)]

    assert served(requests[:-1], 6144 * MIB).pool_bytes == (4096 + 2 * 871) * MIB
    kept = round_up(6144 * MIB // 20, 256)
    assert refused(requests, 6144) == Overflow(5836, tuple(range(5836)), kept, 0)


@pytest.mark.parametrize(("number", "pool_mib"), [(1, 2), (2, 4), (3, 4), (4, 8), (7, 8), (8, 16)])
def test_each_region_is_twice_as_large_as_the_one_before(number: int, pool_mib: int) -> None:
    """Buffers of 1 fill regions of 1, 2, 4 and 8; that of 1 has a block of 2."""
    assert served([take(key, 1) for key in range(number)]).pool_bytes == pool_mib * MIB


@pytest.mark.parametrize(("number", "pool_mib"), [(1, 4), (2, 8), (3, 16)])
def test_a_region_that_was_doubled_for_a_request_is_followed_by_one_of_its_size(number: int, pool_mib: int) -> None:
    """3 do not fit into 1, nor into 2: regions of 4, 4 and 8, each of which a buffer of 3 has as a whole, or 3 of 8."""
    assert served([take(key, 3) for key in range(number)]).pool_bytes == pool_mib * MIB


def test_the_last_region_is_what_remains() -> None:
    """10: regions of 4 and 4, and then 2 instead of 8."""
    answer = served([take(0, 4), take(1, 4), take(2, 1), take(3, 1)], 10 * MIB)

    assert answer.pool_bytes == 10 * MIB


def test_two_regions_of_1_mib_share_a_block() -> None:
    """2: a region of 1, and then the 1 that remains, which the driver finds in the same block."""
    assert served([take(0, 1), take(1, 1)], 2 * MIB).pool_bytes == 2 * MIB


def test_where_the_gpu_cannot_give_a_region_nine_tenths_are_tried() -> None:
    """33: a region of 1, whose block has 2, leaves a limit of 32. The GPU has no 16 blocks left, but the 15 for 28.8.

    Nine tenths of 32 MiB are 30198988 B, rounded up 117965 chunks of 256 B. 17 have all of them.
    """
    answer = served([take(0, 1), take(1, 17)], 33 * MIB)

    assert answer.deltas == (MIB, 117965 * 256)
    assert answer.pool_bytes == 32 * MIB


def test_nine_tenths_are_tried_down_to_the_request() -> None:
    """9: as above, with a limit of 8. 7.2 would have 4 blocks, as 8 has, and there are 3; 6.48 too; 5.832 have 3.

    A request of 5 is served by it, and one of 6 is not.
    """
    assert served([take(0, 1), take(1, 5)], 9 * MIB).pool_bytes == 8 * MIB
    assert refused([take(0, 1), take(1, 6)], 9) == Overflow(1, (0,), 8 * MIB, 0)


def test_smaller_regions_are_tried_only_once() -> None:
    """65: after a region of 1, nine tenths of 64 instead of 64, for 33. A limit of 6.4 is left, and two blocks of 2.

    6.4 have no blocks, and nothing less is tried for 2, though there are 4.
    """
    answer = refused([take(0, 1), take(1, 33), take(2, 2)], 65)

    assert answer == Overflow(2, (0, 1), 64 * MIB - 235930 * 256, 0)


def test_what_rounding_makes_no_smaller_is_not_tried_again() -> None:
    """A region of 2 leaves a limit of 256 B and no block; nine tenths of 256 B, rounded up, are 256 B."""
    answer = place_tensorflow([take(0, 2), Request(1, 256)], 2 * MIB + 256, 1)

    assert answer == Overflow(1, (0,), 256, 0)


def test_a_request_above_the_limit_does_not_fit() -> None:
    """10: 4 are in use, and the GPU has the other 6 in one piece."""
    assert refused([take(0, 4), take(1, 7)], 10) == Overflow(1, (0,), 6 * MIB, 6 * MIB)


def test_a_request_larger_than_every_chunk_does_not_fit() -> None:
    """8: free are 2 at 0 and 4 at 4."""
    answer = refused([*region_of(8), take(0, 2), take(1, 2), give(0), take(2, 5)], 8)

    assert answer == Overflow(5, (1,), 6 * MIB, 4 * MIB)


def test_a_region_is_never_given_back() -> None:
    """12: nothing is in use, but a region of 8 is kept, and 9 do not fit."""
    assert refused([*region_of(8), take(0, 9)], 12) == Overflow(2, (), 12 * MIB, 8 * MIB)
