"""Private pools by layouts, small cases by hand; sizes in MiB, times in requests."""

from vdnnsim.memory.packing import Lifetime
from vdnnsim.memory.private_pools import Cut, PrivatePools
from vdnnsim.units import MIB


def life(mib: int, first: int, last: int) -> Lifetime:
    return Lifetime(mib * MIB, first, last)


def cuts(mib: int, blocks: str, lives: list[Lifetime]) -> list[Cut | int]:
    """The cuts for blocks of units named by letters; `-` has none."""
    units = [None if each == "-" else each for each in blocks]
    return list(PrivatePools(lives, units, mib * MIB).cuts())


def test_the_largest_block_has_a_segment_of_its_own() -> None:
    """A (100, 2 to 4) is a segment; B (30, 0 to 2) dies before and C (30, 1 to 6) lives beside it.

    Of 170 MiB PyTorch's own pool has 70, and 66.2 but for a gap: B and C, 60 together, lie there. Filled last, B lies
    in A's segment, in the time before A.
    """
    found = cuts(170, "ABC", [life(100, 2, 4), life(30, 0, 2), life(30, 1, 6)])
    assert found[0] == Cut({1: [100 * MIB]}, {"A": 1})
    assert found[2] == Cut({1: [100 * MIB]}, {"A": 1, "B": 1})


def test_the_next_size_has_segments_where_the_layout_has_its_blocks() -> None:
    """After A (100), B lies in A's segment before A in one layout, and C beyond: a second segment, of 30 MiB."""
    found = cuts(170, "ABC", [life(100, 2, 4), life(30, 0, 2), life(30, 1, 6)])
    assert Cut({1: [100 * MIB], 2: [30 * MIB]}, {"A": 1, "B": 1, "C": 2}) in found


def test_a_unit_of_two_large_blocks_has_one_pool_with_both_segments() -> None:
    """Both blocks of A live at once."""
    found = cuts(300, "AA", [life(100, 0, 4), life(100, 1, 3)])
    assert found[0] == Cut({1: [100 * MIB, 100 * MIB]}, {"A": 1}) or found[0] == Cut({2: [100 * MIB] * 2}, {"A": 2})


def test_a_unit_whose_small_blocks_lie_apart_uses_pytorchs_own_pool() -> None:
    """B's first block fits beside A, in A's time, only in PyTorch's own pool, the other before A in A's segment too."""
    lives = [life(100, 2, 4), life(25, 2, 3), life(60, 0, 1), life(30, 0, 4)]
    for cut in cuts(160, "ABBC", lives):
        if isinstance(cut, Cut):
            assert "B" not in cut.pools or cut.pools["B"] == 1


def test_blocks_without_a_unit_stay_in_pytorchs_own_pool() -> None:
    """The second block of 100 is not steered: PyTorch's own pool has room for it in 250 and 200 MiB.

    In 180 it has in the segment of the first, which is PyTorch's own then, but not if both live at once.
    """
    lives = [life(100, 0, 2), life(100, 3, 5)]
    assert cuts(250, "A-", lives)[0] == Cut({1: [100 * MIB]}, {"A": 1})
    assert cuts(200, "A-", lives) == cuts(250, "A-", lives)
    assert cuts(180, "A-", lives)[0] == Cut({0: [100 * MIB]}, {})
    assert all(isinstance(each, int) for each in cuts(180, "A-", [life(100, 0, 4), life(100, 3, 5)]))


def test_what_always_is_in_pytorchs_own_pool_lies_in_the_segments_of_one_pool() -> None:
    """A and B (100, 0 to 3 and 1 to 3) leave 20 MiB of 220, too few for 60, not steered, and for C, both from 3 on.

    60 lie in the segment of A and C (90) in that of B, or the other way round.
    """
    found = cuts(220, "AB-C", [life(100, 0, 3), life(100, 1, 3), life(60, 3, 5), life(90, 4, 6)])
    assert Cut({0: [100 * MIB], 2: [100 * MIB]}, {"B": 2, "C": 2}) in found
    assert Cut({1: [100 * MIB], 0: [100 * MIB]}, {"A": 1, "C": 1}) in found


def test_a_layout_that_is_too_high_says_by_how_much() -> None:
    """A takes 100 MiB of 145 while B (40) and C (10) live too: of 45 MiB, and 43.6 but for a gap, 50 are needed."""
    lacking = cuts(145, "ABC", [life(100, 0, 2), life(40, 0, 2), life(10, 0, 2)])
    assert all(isinstance(each, int) and each > 0 for each in lacking[:6])


def test_no_layout_is_tried_twice() -> None:
    """A fills its segment of 100 MiB of 150, so that others lie around the block as around the segment.

    Of C and D, which live later, one has room there and the other none in 50 MiB, and nothing is left for gaps.
    """
    found = cuts(150, "ABCD", [life(100, 0, 2), life(50, 0, 2), life(75, 2, 4), life(75, 2, 4)])
    assert len(found) == 1
    assert isinstance(found[0], int)


def test_small_blocks_have_no_segments() -> None:
    """PyTorch takes segments of 20 MiB for requests below 10."""
    assert cuts(100, "AB", [life(19, 0, 2), life(5, 0, 2)]) == []


def test_there_is_an_end_to_private_pools() -> None:
    """17 blocks of 20 MiB that live at once would need 17 segments."""
    assert cuts(1000, "ABCDEFGHIJKLMNOPQ", [life(20, 0, 2)] * 17) == []
