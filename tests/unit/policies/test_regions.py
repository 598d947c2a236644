"""Regions that stays of buffers share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.policies.iterations.layrub_memory import Stay, share_regions


@pytest.mark.parametrize(
    ("stays", "regions"),
    [
        # 8 B in steps 0 to 1 and 6 B in 2 to 3: one at once, as large as the largest.
        ([Stay(0, 8, 0, 1), Stay(1, 6, 2, 3)], ([8], [0, 0])),
        # 8 B in the first region, 6 B beside them in a second one. In step 2 these are still there; 9 B take the first,
        # which grows. In step 3 all is free, and 7 B take the first, which stays as it is.
        ([Stay(0, 8, 0, 1), Stay(1, 6, 1, 2), Stay(2, 9, 2, 2), Stay(3, 7, 3, 3)], ([9, 6], [0, 1, 0, 0])),
        # In the order of steps, and then as given.
        ([Stay(0, 1, 2, 2), Stay(1, 2, 0, 2), Stay(2, 3, 0, 2)], ([2, 3, 1], [2, 0, 1])),
    ],
)
def test_a_buffer_takes_the_first_free_region(stays: list[Stay], regions: tuple[list[int], list[int]]) -> None:
    assert share_regions(stays) == regions


STAYS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(0, 9), st.integers(0, 4)).map(
        lambda each: Stay(each[0], each[1], each[2], each[2] + each[3])
    ),
    max_size=12,
)


@given(STAYS)
def test_stays_in_one_region_never_overlap(stays: list[Stay]) -> None:
    sizes, region_of = share_regions(stays)

    for i, (stay, region) in enumerate(zip(stays, region_of, strict=True)):
        assert sizes[region] >= stay.nbytes
        for other, its in zip(stays[:i], region_of, strict=False):
            assert region != its or stay.first > other.last or other.first > stay.last
