"""TensorFlow's BFC allocator, by hand; sizes in MiB unless stated otherwise.

A GPU of 225 or less leaves nothing to the system, so its limit is all of it.
"""

import pytest

from tests.memory_requests import placed, serving, take, written
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
from vdnnsim.units import MIB

ROOMY = 2**40
place_tensorflow = serving(MemoryModel.TENSORFLOW)
REGION = "8 -0"
"""A region of 8 that is free as a whole."""
CUT = f"{REGION} 2 1 2 1"
"""In the region: 1 at 0 (2), 2 at 2 (1), 3 at 3 (2), 4 at 5 (1), and 2 free at 6."""


def served(requests: list[Request], capacity_bytes: int = ROOMY, granule_bytes: int = 1) -> Placed:
    return placed(place_tensorflow(requests, capacity_bytes, granule_bytes))


@pytest.mark.parametrize(("granule_bytes", "deltas"), [(1, (256, 768)), (512, (512, 1024))])
def test_sizes_are_rounded_up_to_256_b_and_to_the_granule(granule_bytes: int, deltas: tuple[int, int]) -> None:
    """1 B and 513 B, one after the other, of a region of 1 MiB; the driver gives a block of 2."""
    answer = served([Request(0, 1), Request(1, 513)], granule_bytes=granule_bytes)
    assert answer == Placed((0, deltas[0]), deltas, 2 * MIB)


@pytest.mark.parametrize(
    ("requests", "offsets", "pool_mib"),
    [
        # A chunk twice as large is split: 4 of a free 8 leave 4.
        (f"{REGION} 4 4", (0, 4), 8),
        # 1.5 fit into 2 at 0 and, merged, 3 at 5, and take the smaller; 2.5 fit into the larger alone.
        (f"{CUT} -1 -4 1.5", (0,), 8),
        (f"{CUT} -1 -4 2.5", (5,), 8),
        # Free: 2 at 0, at 3 and at 6; the lowest of equals wins.
        (f"{CUT} -3 -1 2 2 2", (0, 3, 6), 8),
        # 2 is the last to come back, between 2 and 5 that are free: all 8 are one chunk again.
        (f"{CUT} -1 -3 -4 -2 8", (0,), 8),
    ],
)
def test_the_smallest_chunk_that_is_large_enough_is_split_and_merged(
    requests: str, offsets: tuple[int, ...], pool_mib: int
) -> None:
    answer = served(written(requests))
    assert answer.offsets[-len(offsets) :] == tuple(each * MIB for each in offsets)
    assert answer.pool_bytes == pool_mib * MIB


@pytest.mark.parametrize(
    ("region_mib", "nbytes", "delta"),
    [
        (8, 4 * MIB, 4 * MIB),
        # Less than twice as large, a chunk is left whole,
        (8, 4 * MIB + 256, 8 * MIB),
        # unless 128 MiB would be wasted.
        (512, 384 * MIB, 384 * MIB),
        (512, 384 * MIB + 256, 512 * MIB),
    ],
)
def test_a_chunk_is_split_when_much_is_left(region_mib: int, nbytes: int, delta: int) -> None:
    assert served([*written(f"{region_mib} -0"), Request(1, nbytes)]).deltas[2] == delta


@pytest.mark.parametrize(
    ("free_mib", "limit_mib"),
    [(224, 224), (226, 1), (1024, 799), (2047, 1822), (2048, 1748), (6000, 5700), (6020, 5719), (24000, 22800)],
)
def test_the_limit_is_what_is_free_less_what_the_system_keeps(free_mib: int, limit_mib: int) -> None:
    """225 below 2048, where there is as much, then 300 up to 6000 and a twentieth beyond: of 6020 that is 301.

    A request for the limit has a region of it, in blocks of 2; 256 B more do not fit, though the GPU has them.
    """
    limit, free = limit_mib * MIB, free_mib * MIB
    assert served([Request(0, limit)], free).pool_bytes == round_up(limit, 2 * MIB)
    assert place_tensorflow([Request(0, limit + 256)], free, 1) == Overflow(0, (), free, limit)


def test_the_blocks_of_regions_fit_into_what_the_system_keeps() -> None:
    """6144: a limit of 5836.8. Regions of 1, 2 to 2048 are 4095 in all and take 4096; the last has the other 1741.8.

    It holds 1741 buffers of 1, in 871 blocks, the last of which has 1.8, for that is not twice as much. So the one
    after them finds what is left to the system, and no piece of it: 307.2 and what is less than a chunk.
    """
    requests = [take(key, 1) for key in range(5837)]
    assert served(requests[:-1], 6144 * MIB).pool_bytes == (4096 + 2 * 871) * MIB
    kept = round_up(6144 * MIB // 20, 256)
    assert place_tensorflow(requests, 6144 * MIB, 1) == Overflow(5836, tuple(range(5836)), kept, 0)


@pytest.mark.parametrize(
    ("requests", "capacity_bytes", "pool_mib"),
    [
        # Each region is twice as large as the one before: buffers of 1 fill regions of 1, 2, 4 and 8.
        *((" 1" * number, ROOMY, pool) for number, pool in ((1, 2), (2, 4), (3, 4), (4, 8), (7, 8), (8, 16))),
        # 3 do not fit into 1, nor into 2: regions of 4, 4 and 8, each of which a buffer of 3 has as a whole, or 3 of 8.
        *((" 3" * number, ROOMY, pool) for number, pool in ((1, 4), (2, 8), (3, 16))),
        # Two free regions of 8 never merge: 16 are a third one.
        ("8 8 -0 -1 16", ROOMY, 32),
        # Regions of 4 and 4, and then 2 instead of 8, which is what remains.
        ("4 4 1 1", 10 * MIB, 10),
        # A region of 1, and then the 1 that remains, which the driver finds in the same block.
        ("1 1", 2 * MIB, 2),
        # Where the system would keep all, it keeps nothing.
        ("1", 225 * MIB, 2),
        # As below, with a limit of 8: 7.2 would have 4 blocks, as 8 has, and there are 3; 6.48 too; 5.832 have 3.
        ("1 5", 9 * MIB, 8),
    ],
)
def test_regions_are_doubled_within_the_limit(requests: str, capacity_bytes: int, pool_mib: int) -> None:
    assert served(written(requests), capacity_bytes).pool_bytes == pool_mib * MIB


def test_where_the_gpu_cannot_give_a_region_nine_tenths_are_tried() -> None:
    """33: a region of 1, whose block has 2, leaves a limit of 32. The GPU has no 16 blocks left, but the 15 for 28.8.

    Nine tenths of 32 MiB are 30198988 B, rounded up 117965 chunks of 256 B. 17 have all of them.
    """
    answer = served(written("1 17"), 33 * MIB)
    assert (answer.deltas, answer.pool_bytes) == ((MIB, 117965 * 256), 32 * MIB)


@pytest.mark.parametrize(
    ("requests", "capacity_bytes", "expected"),
    [
        (written("1 6"), 9 * MIB, Overflow(1, (0,), 8 * MIB, 0)),
        # After a region of 1, nine tenths of 64 instead of 64, for 33. A limit of 6.4 is left, and two blocks of 2: 6.4
        # have no blocks, and nothing less is tried a second time for 2, though there are 4.
        (written("1 33 2"), 65 * MIB, Overflow(2, (0, 1), 64 * MIB - 235930 * 256, 0)),
        # A region of 2 leaves a limit of 256 B and no block; nine tenths of 256 B, rounded up, are 256 B.
        ([take(0, 2), Request(1, 256)], 2 * MIB + 256, Overflow(1, (0,), 256, 0)),
        # 4 are in use, and the GPU has the other 6 in one piece.
        (written("4 7"), 10 * MIB, Overflow(1, (0,), 6 * MIB, 6 * MIB)),
        # Free are 2 at 0 and 4 at 4.
        (written(f"{REGION} 2 2 -1 5"), 8 * MIB, Overflow(5, (2,), 6 * MIB, 4 * MIB)),
        # Nothing is in use, but a region is never given back: 8 are kept, and 9 do not fit.
        (written(f"{REGION} 9"), 12 * MIB, Overflow(2, (), 12 * MIB, 8 * MIB)),
    ],
)
def test_what_does_not_fit_says_what_is_free(requests: list[Request], capacity_bytes: int, expected: Overflow) -> None:
    assert place_tensorflow(requests, capacity_bytes, 1) == expected
