"""The rules of PyTorch's expandable segments, each worked out by hand; sizes in MiB where not said otherwise."""

import pytest

from tests.memory_requests import give, take, taken
from vdnnsim.memory.caching import CachingAllocator, place_pytorch, pytorch_allocator
from vdnnsim.memory.expandable import ExpandableSegments
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.memory.settings import AllocatorSettings, parse_settings
from vdnnsim.units import MIB

ROOMY = 2**40
GROWING = AllocatorSettings(expandable_segments=True)


def served(requests: list[Request], capacity_mib: float = ROOMY) -> Placed:
    answer = place_pytorch(requests, round(capacity_mib * MIB), 512, GROWING)
    assert isinstance(answer, Placed)
    return answer


def roomy() -> CachingAllocator:
    return CachingAllocator(ExpandableSegments(ROOMY * MIB, 512))


@pytest.mark.parametrize(("mib", "expected"), [(0.5, 2), (1, 2), (2, 20), (10, 20), (20, 20), (21, 40), (100, 100)])
def test_memory_is_mapped_in_pages(mib: float, expected: int) -> None:
    """Up to 1 in pages of 2, above in pages of 20, also where a segment of cudaMalloc would have 10 or 22."""
    assert served([take(0, mib)]).pool_bytes == expected * MIB


def test_a_segment_grows_behind_its_last_block() -> None:
    """30 map 40; 15 take the last 10 of them and 5 of another page: 60 in all, where cudaMalloc takes 30 and 16."""
    answer = served([take(0, 30), take(1, 15)])

    assert answer.offsets == (0, 30 * MIB)
    assert answer.pool_bytes == 60 * MIB


def test_a_block_is_cut_to_the_granule_in_the_large_pool_as_well() -> None:
    """19.5 of a page of 20 leave 0.5, which a whole segment would have given along."""
    assert served([take(0, 19.5)]).deltas == (round(19.5 * MIB),)


def test_what_is_free_at_the_end_and_can_grow_counts_as_large() -> None:
    """30 and 10 fill 40, and 20 more come behind them; 30 and 20 come back.

    18 fit the 20 best, but those could grow to all addresses that are left, and the 30 cannot: they are taken.
    """
    answer = served([take(0, 30), take(1, 10), take(2, 20), give(0), give(2), take(3, 18)])

    assert answer.offsets[-1] == 0
    assert answer.pool_bytes == 60 * MIB


def test_a_block_at_the_end_is_taken_where_there_is_no_other() -> None:
    """As before, but the 30 are in use."""
    assert served([take(0, 30), take(1, 10), take(2, 20), give(2), take(3, 18)]).offsets[-1] == 40 * MIB


def test_blocks_merge_across_pages() -> None:
    """Two of 20 come back and serve 40, for which two segments of cudaMalloc would be of no use."""
    answer = served([take(0, 20), take(1, 20), give(0), give(1), take(2, 40)])

    assert answer.offsets[-1] == 0
    assert answer.pool_bytes == 40 * MIB


def test_whole_pages_go_back_to_the_gpu_when_it_has_no_room() -> None:
    """60: the lower 30 are in use and the upper free, of which the page from 40 on is whole.

    A small request finds no room; the page goes, and 2 come. The 10 in front of it stay.
    """
    pool = CachingAllocator(ExpandableSegments(60 * MIB, 512))
    kept, freed = taken(pool, 30), taken(pool, 30)
    pool.free(freed)

    assert kept == Block(0, 30 * MIB)
    assert pool.take(MIB) is not None
    assert pool.reserved_bytes == 42 * MIB
    assert pool.free_blocks[0] == Block(30 * MIB, 10 * MIB)


def test_the_lowest_gap_that_is_large_enough_is_filled() -> None:
    """20, 20, 20, 40, 20 in a row: the second and the fourth come back and go to the GPU.

    10 go into the gap of 20, 30 into that of 40, and 60 behind all 120.
    """
    pool = roomy()
    first, second, third, fourth, fifth = (taken(pool, mib) for mib in (20, 20, 20, 40, 20))
    pool.free(second)
    pool.free(fourth)
    pool.empty_cache()

    assert (first.start, third.start, fifth.start) == (0, 40 * MIB, 100 * MIB)
    assert pool.reserved_bytes == 60 * MIB
    assert [taken(pool, mib).start for mib in (10, 30, 60)] == [20 * MIB, 60 * MIB, 120 * MIB]
    assert pool.reserved_bytes == (60 + 20 + 40 + 60) * MIB


def test_gaps_around_free_memory_are_filled_together() -> None:
    """Five pages, of which the second and the fourth went to the GPU and the third is free: 60 take all three."""
    pool = roomy()
    pages = [taken(pool, 20) for _ in range(5)]
    pool.free(pages[1])
    pool.free(pages[3])
    pool.empty_cache()
    pool.free(pages[2])

    assert taken(pool, 60) == Block(20 * MIB, 60 * MIB)
    assert pool.reserved_bytes == 100 * MIB


def test_free_memory_in_front_of_a_gap_is_taken_with_it() -> None:
    """30 and 30 map 60; the upper 30 come back, and the last page goes. 25 take the 10 that are left and a page."""
    pool = roomy()
    first, second = taken(pool, 30), taken(pool, 30)
    pool.free(second)
    pool.empty_cache()

    assert first.start == 0
    assert pool.reserved_bytes == 40 * MIB
    assert taken(pool, 25) == Block(30 * MIB, 25 * MIB)
    assert pool.reserved_bytes == 60 * MIB


def test_a_segment_without_memory_is_given_back() -> None:
    """Its addresses go, too: the next segment lies where no other has been, and the lower one is not extended."""
    pool = roomy()
    pool.free(taken(pool, 20))
    pool.empty_cache()

    assert pool.reserved_bytes == 0
    assert taken(pool, 20).start > 0


def test_addresses_end_behind_nine_eighths_of_memory() -> None:
    """160, all of it mapped, have 180 of addresses: 60, 40, 60 in a row and a gap of 20.

    Once the 60s are back, 80 go behind the 40, and 70, which the lower 60 cannot hold, into a segment of their own.
    For its four pages, 200 being all that may be mapped, those of the lower 60 go back to the GPU.
    """
    pool = CachingAllocator(ExpandableSegments(200 * MIB, 512, total_bytes=160 * MIB))
    low, middle, high = (taken(pool, mib) for mib in (60, 40, 60))
    pool.free(low)
    pool.free(high)

    assert middle == Block(60 * MIB, 40 * MIB)
    assert taken(pool, 80) == Block(100 * MIB, 80 * MIB)
    assert taken(pool, 70) == Block(180 * MIB, 70 * MIB)
    assert pool.reserved_bytes == (40 + 80 + 80) * MIB


def test_what_does_not_fit_names_what_is_free() -> None:
    """50: 30 map 40. 25 more want 15 behind the free 10, that is a page for which only 10 are left."""
    answer = place_pytorch([take(0, 30), take(1, 25)], 50 * MIB, 512, GROWING)

    assert answer == Overflow(1, (0,), 20 * MIB, 10 * MIB)


def settings_allocator(mib: int, settings: str) -> CachingAllocator:
    return pytorch_allocator(mib * MIB, 512, parse_settings(f"expandable_segments:True,{settings}"))


def test_a_large_free_block_is_kept_from_a_smaller_request() -> None:
    """60, then 30, and the 60 come back. 10 would be of these; from 20 on they may not, and come behind the 30."""
    for settings, start_mib, reserved_mib in (("", 0, 100), ("max_split_size_mb:20", 90, 100)):
        pool = settings_allocator(ROOMY, settings)
        large, _ = taken(pool, 60), taken(pool, 30)
        pool.free(large)

        assert taken(pool, 10).start == start_mib * MIB
        assert pool.reserved_bytes == reserved_mib * MIB


def test_settings_allow_less_than_there_is_and_are_asked_for_a_whole_segment() -> None:
    """Half of 120. 30 map 40; 15 more lack 5 of a page, but a segment for them has 16: 56 of 60, and a page is mapped.

    5 more find the 15 that are left. 21 would have 22, which is more than the limit.
    """
    pool = settings_allocator(120, "per_process_memory_fraction:0.5")

    assert [taken(pool, mib).start for mib in (30, 15, 5)] == [0, 30 * MIB, 45 * MIB]
    assert pool.reserved_bytes == 60 * MIB
    assert pool.take(21 * MIB) is None


def test_ranges_are_what_is_mapped() -> None:
    """Three pages of 20, of which the middle one went; and one of 2 in the small pool, behind all addresses."""
    pool = CachingAllocator(ExpandableSegments(160 * MIB, 512))
    pages = [taken(pool, 20) for _ in range(3)]
    small = taken(pool, 1)
    pool.free(pages[1])
    pool.empty_cache()

    assert pool.ranges == [(0, 20 * MIB), (40 * MIB, 20 * MIB), (small.start, 2 * MIB)]
    assert pool.segment_changes == 5
