"""PyTorch's expandable segments, by hand; sizes in MiB unless stated otherwise."""

import pytest

from tests.memory_requests import taken, written
from vdnnsim.memory.caching import CachingAllocator, place_pytorch, pytorch_allocator
from vdnnsim.memory.expandable import ExpandableSegments
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import Overflow, Placed
from vdnnsim.memory.settings import AllocatorSettings, parse_settings
from vdnnsim.units import MIB

ROOMY = 2**40
GROWING = AllocatorSettings(expandable_segments=True)


def roomy() -> CachingAllocator:
    return CachingAllocator(ExpandableSegments(ROOMY * MIB, 512))


@pytest.mark.parametrize(
    ("requests", "offset", "delta", "pool_mib"),
    [
        # Up to 1 in pages of 2, above in pages of 20, also where a segment of cudaMalloc would have 10 or 22.
        *((f"{mib}", 0, mib, pool) for mib, pool in ((0.5, 2), (1, 2), (2, 20), (10, 20), (20, 20), (21, 40))),
        # 30 map 40; 15 take the last 10 of them and 5 of another page, where cudaMalloc takes 30 and 16.
        ("30 15", 30, 15, 60),
        # 19.5 of a page of 20 leave 0.5, which a whole segment would have allocated with it.
        ("19.5", 0, 19.5, 20),
        # 30 and 10 fill 40, and 20 more lie behind them; 30 and 20 are freed. 18 fit the 20 best, but those could grow
        # to all addresses that are left, and the 30 cannot: they are taken.
        ("30 10 20 -0 -2 18", 0, 18, 60),
        # As before, but the 30 are in use.
        ("30 10 20 -2 18", 40, 18, 60),
        # Two of 20 are freed and serve 40, for which two segments of cudaMalloc would be of no use.
        ("20 20 -0 -1 40", 0, 40, 40),
    ],
)
def test_a_segment_grows_by_pages(requests: str, offset: float, delta: float, pool_mib: float) -> None:
    placed = place_pytorch(written(requests), ROOMY * MIB, 512, GROWING)
    assert isinstance(placed, Placed)
    assert (placed.offsets[-1], placed.deltas[-1]) == (offset * MIB, delta * MIB)
    assert placed.pool_bytes == pool_mib * MIB


def test_overflow_reports_the_free_memory() -> None:
    """50: 30 map 40. 25 more want 15 behind the free 10, that is a page for which only 10 are left."""
    assert place_pytorch(written("30 25"), 50 * MIB, 512, GROWING) == Overflow(1, (0,), 20 * MIB, 10 * MIB)


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


def test_gaps_are_filled_lowest_first_with_the_free_memory_around_them() -> None:
    """20, 20, 20, 40, 20 in a row, of which the second and the fourth are unmapped: 10 and 30 go there, 60 behind."""
    pool = roomy()
    blocks = [taken(pool, mib) for mib in (20, 20, 20, 40, 20)]
    pool.free(blocks[1])
    pool.free(blocks[3])
    pool.empty_cache()
    assert pool.reserved_bytes == 60 * MIB
    assert [taken(pool, mib).start for mib in (10, 30, 60)] == [20 * MIB, 60 * MIB, 120 * MIB]
    assert pool.reserved_bytes == (60 + 20 + 40 + 60) * MIB
    # Five pages, of which the second and the fourth went to the GPU and the third is free: 60 take all three.
    pool = roomy()
    pages = [taken(pool, 20) for _ in range(5)]
    pool.free(pages[1])
    pool.free(pages[3])
    pool.empty_cache()
    pool.free(pages[2])
    assert taken(pool, 60) == Block(20 * MIB, 60 * MIB)
    assert pool.reserved_bytes == 100 * MIB
    # 30 and 30 map 60; the upper 30 come back, and the last page goes. 25 take the 10 that are left and a page.
    pool = roomy()
    first, second = taken(pool, 30), taken(pool, 30)
    pool.free(second)
    pool.empty_cache()
    assert first.start == 0
    assert pool.reserved_bytes == 40 * MIB
    assert taken(pool, 25) == Block(30 * MIB, 25 * MIB)
    assert pool.reserved_bytes == 60 * MIB
    # Its addresses go, too: the next segment lies where no other has been, and the lower one is not extended.
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


@pytest.mark.parametrize(("settings", "start_mib"), [("", 0), (",max_split_size_mb:20", 90)])
def test_a_large_free_block_is_kept_from_a_smaller_request(settings: str, start_mib: int) -> None:
    """60, then 30, and the 60 are freed. 10 would be of these; from 20 on they may not, and lie behind the 30."""
    placed = place_pytorch(
        written("60 30 -0 10"), ROOMY * MIB, 512, parse_settings(f"expandable_segments:True{settings}")
    )
    assert isinstance(placed, Placed)
    assert (placed.offsets[-1], placed.pool_bytes) == (start_mib * MIB, 100 * MIB)


def test_a_memory_fraction_is_checked_against_whole_segments() -> None:
    """Half of 120. 30 map 40; 15 more lack 5 of a page, but a segment for them has 16: 56 of 60, and a page is mapped.

    5 more find the 15 that are left. 21 would have 22, which is more than the limit.
    """
    settings = parse_settings("expandable_segments:True,per_process_memory_fraction:0.5")
    pool = pytorch_allocator(120 * MIB, 512, settings)

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
