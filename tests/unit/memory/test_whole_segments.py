"""Settings of PyTorch's allocator with whole segments, by hand; sizes in MiB."""

import pytest

from tests.memory_requests import give, placed, take, taken, written
from vdnnsim.memory.caching import CachingAllocator, place_pytorch, pytorch_allocator
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.memory.settings import parse_settings
from vdnnsim.units import MIB

ROOMY = 2**40


def served(requests: list[Request], settings: str, capacity_mib: int = ROOMY) -> Placed:
    return placed(place_pytorch(requests, capacity_mib * MIB, 512, parse_settings(settings)))


def allocator(mib: int, settings: str, total_mib: int | None = None) -> CachingAllocator:
    total_bytes = None if total_mib is None else total_mib * MIB
    return pytorch_allocator(mib * MIB, 512, parse_settings(settings), total_bytes)


COLLECTS = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9"


@pytest.mark.parametrize(
    ("requests", "settings", "delta", "pool_mib"),
    [
        # 15 are cut off the free 60; from 32 on nothing is cut, and they take a segment of 16.
        ("60 -0 15", "", 15, 60),
        ("60 -0 15", "max_split_size_mb:32", 16, 76),
        # 45 take all of the free 60; 40 would waste 20, and take a segment of their own.
        ("60 -0 45", "max_split_size_mb:32", 60, 60),
        ("60 -0 40", "max_split_size_mb:32", 40, 100),
        # Of 400, 40 are kept below the threshold, and without a limit.
        ("40 -0 60", COLLECTS, 60, 100),
        ("40 -0 60", "garbage_collection_threshold:0.1", 60, 100),
    ],
)
def test_settings_decide_which_blocks_are_cut_and_kept(requests: str, settings: str, delta: int, pool_mib: int) -> None:
    placed = served(written(requests), settings, 400)
    assert (placed.deltas[-1], placed.pool_bytes) == (delta * MIB, pool_mib * MIB)


def test_segments_are_released_until_a_request_fits() -> None:
    """100: 24, 30 and 40 are free. 15 may have none of them, and their 16 do not fit: the 24 go, the smallest."""
    pool = allocator(100, "max_split_size_mb:20")
    for block in [taken(pool, mib) for mib in (24, 30, 40)]:
        pool.free(block)
    assert taken(pool, 15).nbytes == 16 * MIB
    assert pool.reserved_bytes == (30 + 40 + 16) * MIB
    # 100: 24, 30, 40 came back. For 60 of another stream, which has none, all three go. For 60 of theirs, 40 and 30
    # go, and the 24 stay.
    other, own = (allocator(100, "max_split_size_mb:20") for _ in range(2))
    for pool in (other, own):
        for block in [taken(pool, mib) for mib in (24, 30, 40)]:
            pool.free(block)
    assert taken(other, 60, stream=1).nbytes == 60 * MIB
    assert other.reserved_bytes == 60 * MIB
    assert taken(own, 60).nbytes == 60 * MIB
    assert own.reserved_bytes == (24 + 60) * MIB
    # 100: 24 came back, and 2 of the small pool; 40 are in use, so 34 are free, 58 with the 24. 50 do not fit. The 24
    # go, which alone are no 50, so PyTorch gives back the 2 as well before it asks again.
    pool = allocator(100, "max_split_size_mb:20")
    kept, large, small = taken(pool, 40), taken(pool, 24), taken(pool, 1)
    pool.free(large)
    pool.free(small)
    assert taken(pool, 50).nbytes == 50 * MIB
    assert kept.nbytes == 40 * MIB
    assert pool.reserved_bytes == 90 * MIB


def test_a_memory_fraction_is_of_all_memory() -> None:
    """Half of 100, though 80 are free: 30 and then 20 fit, 22 do not."""
    settings = parse_settings("per_process_memory_fraction:0.5")

    assert isinstance(place_pytorch([take(0, 30), take(1, 20)], 80 * MIB, 512, settings, 100 * MIB), Placed)
    refused = place_pytorch([take(0, 30), take(1, 22)], 80 * MIB, 512, settings, 100 * MIB)
    assert isinstance(refused, Overflow)
    assert refused.position == 1


def test_segments_that_were_free_longest_are_collected_above_the_threshold() -> None:
    """Of 200, 90 are the threshold: half of 180. 40, 30 and 24 came back after 3, 3 and 4 requests to the large pool.

    The fifth, 50, finds no block, and 94 are more than 90: of the ages 2, 2 and 1, the mean is 1.67, so that 40 and 30
    go. That is more than the 4 that had to.
    """
    pool = allocator(200, COLLECTS)
    first, second, third = (taken(pool, mib) for mib in (40, 30, 24))
    pool.free(first)
    pool.free(second)
    assert taken(pool, 1) == Block(94 * MIB, MIB)
    pool.free(third)
    fourth = taken(pool, 21)
    pool.free(fourth)

    assert taken(pool, 50).nbytes == 50 * MIB
    assert pool.reserved_bytes == (24 + 2 + 50) * MIB


def test_younger_segments_are_collected_where_old_ones_are_too_small() -> None:
    """20 came back before a request and 60 after; 92 with 12 in use. 150 find nothing: threshold 36, 56 too many.

    The mean age of 3 and 1 is 2: the 20 go, and then the 60, whose age is now the mean.
    """
    pool = allocator(400, "garbage_collection_threshold:0.1,per_process_memory_fraction:0.9", total_mib=400)
    old, young, kept = taken(pool, 20), taken(pool, 60), taken(pool, 12)
    pool.free(old)
    pool.take(12 * MIB, 1)
    pool.free(young)

    assert taken(pool, 150).nbytes == 150 * MIB
    assert kept.nbytes == 12 * MIB
    assert pool.reserved_bytes == (12 + 12 + 150) * MIB


def test_ranges_are_the_segments_and_changes_count_them() -> None:
    pool = allocator(ROOMY, "")
    blocks = [taken(pool, mib) for mib in (30, 1)]

    assert pool.ranges == [(0, 30 * MIB), (30 * MIB, 2 * MIB)]
    assert pool.segment_changes == 2
    pool.free(blocks[0])
    pool.empty_cache()
    assert pool.ranges == [(30 * MIB, 2 * MIB)]
    assert (pool.segment_changes, pool.segment_starts) == (3, [30 * MIB])


def search(mib: int) -> Request:
    return Request(100, mib * MIB, searches=True)


def test_a_search_leaves_nothing_in_the_pool() -> None:
    """60 come back and stay, for a search of 40 to be made there; then all goes, and 30 take a segment of their own."""
    answer = served([take(0, 60), give(0), search(40), take(1, 30), give(1)], "")

    assert answer == Placed((0, 0, None, 60 * MIB, 60 * MIB), (60 * MIB, -60 * MIB, 0, 30 * MIB, -30 * MIB), 60 * MIB)


@pytest.mark.parametrize(
    ("requests", "peaks"),
    [
        # 20 and 100 for the search; 110 beside the 20 are more, 100 are as many.
        ([take(0, 20), search(100)], True),
        ([take(0, 20), search(100), take(1, 100)], True),
        ([take(0, 20), search(100), take(1, 110)], False),
        ([take(0, 120), give(0), search(100)], False),
    ],
)
def test_a_search_may_set_the_peak(requests: list[Request], peaks: bool) -> None:  # noqa: FBT001  # given by pytest
    assert served(requests, "").peaks_in_search is peaks


def test_a_search_halves_its_request_until_there_is_room() -> None:
    """Of 100, 30 are in use: 200 and 100 find no room, 50 do; where all is in use there is none for any."""
    assert served([take(0, 30), search(200)], "", 100).pool_bytes == 80 * MIB
    assert served([take(0, 100), search(50)], "", 100) == Placed((0, None), (100 * MIB, 0), 100 * MIB)
