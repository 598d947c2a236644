"""Offline packing, small cases by hand; sizes in bytes, times in requests."""

from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.memory.packing import Lifetime, Packing, most_live_bytes, pack, packings

TIME = 12


@st.composite
def lifetimes(draw: st.DrawFn) -> Lifetime:
    first = draw(st.integers(0, TIME - 1))
    return Lifetime(draw(st.integers(1, 40)), first, draw(st.integers(first + 1, TIME)))


def assert_apart(placed: list[tuple[int, Lifetime]]) -> None:
    for at, (start, life) in enumerate(placed):
        for other, another in placed[:at]:
            meets = life.first < another.last and another.first < life.last
            assert not meets or start + life.nbytes <= other or other + another.nbytes <= start


def test_nothing_takes_nothing() -> None:
    assert pack([]) == Packing((), 0, 0)
    assert pack([]).gap == 0


def test_blocks_that_never_meet_lie_at_the_same_address() -> None:
    assert pack([Lifetime(10, 0, 2), Lifetime(7, 2, 3)]) == Packing((0, 0), 10, 10)


def test_a_block_goes_first_that_lay_above_the_bound() -> None:
    """The largest first, 20 B (0 to 3) lie at 0, 12 B (2 to 5) at 20, 10 B (4 to 6) at 0, and 8 B (1 to 5) at 32.

    At 4 there live 12 + 10 + 8 = 30 B, at 2 20 + 12 + 8 = 40 B: the bound is 40, which that layout reaches. With 20 B
    from 0 to 2, another 12 B from 4 to 6, and 15 B from 3 to 5, a greedy one by size leaves 9 B between two blocks.
    """
    found = pack([Lifetime(20, 0, 3), Lifetime(12, 2, 5), Lifetime(10, 4, 6), Lifetime(8, 1, 5)])
    assert found.height_bytes == found.bound_bytes == 40
    assert found.gap == 0


def test_a_greedy_order_is_improved() -> None:
    """A (6 B, 0 to 2), B (5 B, 1 to 4), C (5 B, 3 to 6), D (4 B, 3 to 4): at 3 live 14 B, at 1 11 B.

    By size A lies at 0, B at 6, C at 0, and D, which meets B and C, at 11: 15 B, for 1 B is left between C and B. With
    B at 0, A lies at 5, C at 5 and D at 10, which are 14 B.
    """
    lives = [Lifetime(6, 0, 2), Lifetime(5, 1, 4), Lifetime(5, 3, 6), Lifetime(4, 3, 4)]
    assert pack(lives).height_bytes == most_live_bytes(lives) == 14


def test_blocks_with_addresses_stay_where_they_are() -> None:
    """4 B lie at 3 throughout. 3 B fit below, 4 B do not; with a goal of 11 B that is enough, and the search ends."""
    fixed = [(3, Lifetime(4, 0, 9))]
    (found,) = packings([Lifetime(3, 0, 2), Lifetime(4, 1, 2)], fixed, 11)
    assert found.offsets == (0, 7)
    assert found.height_bytes == 11


def test_blocks_with_little_room_beside_those_with_addresses_go_first() -> None:
    """From 2 to 4 only 4 B are left of 10. A (4 B, 0 to 4) fits there alone, so B (6 B, 0 to 2) lies above it."""
    found = next(packings([Lifetime(6, 0, 2), Lifetime(4, 0, 4)], [(4, Lifetime(6, 2, 4))], 10))
    assert found.offsets == (4, 0)


@given(st.lists(lifetimes(), max_size=12), st.lists(lifetimes(), max_size=2))
def test_no_layout_overlaps_or_is_lower_than_what_lives(lives: list[Lifetime], before: list[Lifetime]) -> None:
    """Also among blocks that have addresses; and the same blocks get the same layout."""
    among = [(at * 40, life) for at, life in enumerate(before)]
    found = list(packings(lives, among))
    for each in found:
        assert_apart([*among, *zip(each.offsets, lives, strict=True)])
        assert each.height_bytes >= each.bound_bytes == most_live_bytes(lives)
    assert list(packings(lives, among)) == found
