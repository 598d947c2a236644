"""Regions that stays of buffers share."""

from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.policies.regions import Regions, Stay, share_regions


def test_stays_that_never_meet_share_one_region() -> None:
    """8 B in steps 0 to 1 and 6 B in 2 to 3: one at once, as large as the largest."""
    assert share_regions([Stay(0, 8, 0, 1), Stay(1, 6, 2, 3)]) == Regions(sizes=(8,), region_of=(0, 0))


def test_as_many_regions_as_stays_at_once_as_large_as_the_largest_buffers() -> None:
    """Two at once in step 1; of 8, 6 and 9 B the two largest count, in which the third, of 6 B, finds room."""
    stays = [Stay(0, 8, 0, 1), Stay(1, 6, 1, 2), Stay(2, 9, 3, 3)]

    assert share_regions(stays) == Regions(sizes=(9, 8), region_of=(1, 0, 0))


def test_a_buffer_that_comes_twice_counts_once() -> None:
    """Buffer 0 of 8 B comes twice, beside buffers of 2 B: two regions, of 8 and 2 B."""
    stays = [Stay(0, 8, 0, 0), Stay(1, 2, 0, 0), Stay(0, 8, 2, 2), Stay(2, 2, 2, 2)]

    assert share_regions(stays).sizes == (8, 2)


def test_where_no_free_region_is_large_enough_the_largest_grows() -> None:
    """Of 8, 4 and 4 B the two largest are 8 and 4. In step 1 the 4 B of buffer 1 lie in the 8, for 4 B are still busy.

    Buffer 0, of 8 B, comes in step 2, when the 4 B are free again and the 8 B are not: the region of 4 B grows.
    """
    stays = [Stay(2, 4, 0, 1), Stay(1, 4, 1, 3), Stay(0, 8, 2, 2)]

    assert share_regions(stays) == Regions(sizes=(8, 8), region_of=(1, 0, 1))


def test_spaces_without_a_buffer_take_room_and_each_counts() -> None:
    assert share_regions([Stay(None, 3, 0, 0), Stay(None, 3, 0, 0)]).sizes == (3, 3)


def test_a_buffer_alone_needs_one_region_for_itself() -> None:
    """It comes twice at once, which no plan does: the second region has no other buffer to be as large as."""
    assert share_regions([Stay(0, 3, 0, 0), Stay(0, 3, 0, 0)]).sizes == (3, 3)


STAYS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(0, 9), st.integers(0, 4)).map(
        lambda each: Stay(each[0], each[1], each[2], each[2] + each[3])
    ),
    max_size=12,
)


@given(STAYS)
def test_nobody_lies_over_another_and_all_find_room(stays: list[Stay]) -> None:
    regions = share_regions(stays)

    for i, (stay, region) in enumerate(zip(stays, regions.region_of, strict=True)):
        assert regions.sizes[region] >= stay.nbytes
        for other, its in zip(stays[:i], regions.region_of, strict=False):
            assert region != its or stay.first > other.last or other.first > stay.last
