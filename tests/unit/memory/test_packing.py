"""Offline packing, small cases by hand; sizes in bytes, times in requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_requests import written
from vdnnsim.memory import packing
from vdnnsim.memory.packing import Lifetime, Packing, most_live_bytes, pack, packings, place_planned
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up

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


def test_blocks_that_never_meet_lie_at_the_same_address() -> None:
    assert pack([Lifetime(10, 0, 2), Lifetime(7, 2, 3)]) == Packing((0, 0), 10, 10)


def test_a_block_goes_first_that_lay_above_the_bound() -> None:
    """The largest first, 20 B (0 to 3) lie at 0, 12 B (2 to 5) at 20, 10 B (4 to 6) at 0, and 8 B (1 to 5) at 32.

    At 4 there live 12 + 10 + 8 = 30 B, at 2 20 + 12 + 8 = 40 B: the bound is 40, which that layout reaches. With 20 B
    from 0 to 2, another 12 B from 4 to 6, and 15 B from 3 to 5, a greedy one by size leaves 9 B between two blocks.
    """
    found = pack([Lifetime(20, 0, 3), Lifetime(12, 2, 5), Lifetime(10, 4, 6), Lifetime(8, 1, 5)])
    assert found.height_bytes == found.bound_bytes == 40


def test_a_greedy_order_is_improved() -> None:
    """A (6 B, 0 to 2), B (5 B, 1 to 4), C (5 B, 3 to 6), D (4 B, 3 to 4): at 3 live 14 B, at 1 11 B.

    By size A lies at 0, B at 6, C at 0, and D, which meets B and C, at 11: 15 B, for 1 B is left between C and B. With
    B at 0, A lies at 5, C at 5 and D at 10, which are 14 B.
    """
    lives = [Lifetime(6, 0, 2), Lifetime(5, 1, 4), Lifetime(5, 3, 6), Lifetime(4, 3, 4)]
    assert pack(lives).height_bytes == most_live_bytes(lives) == 14


@given(st.lists(lifetimes(), min_size=1, max_size=20))
def test_layouts_of_many_blocks_are_those_of_few(lives: list[Lifetime]) -> None:
    """Which blocks live beside each other is remembered of few blocks alone."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(packing, "MOST_REMEMBERED", 0)
        found = pack(lives)
    assert found == pack(lives)


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


@pytest.mark.parametrize(
    ("requests", "granule_bytes", "offsets", "pool_bytes"),
    [
        # 0 and 2 are taken before the first release and never given back: they lie at the bottom in their order,
        # although 1 was asked for between them; 1 and 3 come and go and share 30 and up.
        ("10 50 20 -1 40 -3", 1, (0, 30, 10, 30, 30, 30), 80),
        # 0 is given back at the very end, as W is; 2 came after the first release and does not count.
        ("10 5 -1 30 -2 -0", 1, (0, 10, 10, 10, 10, 0), 40),
        # 1 lives throughout and lies at 0, so 0 and 2 share what is above it.
        ("40 20 -0 60 -1 -2", 1, (20, 0, 20, 20, 0, 20), 80),
        # 1 is taken right after 0 was given back: both lie at 0. 2 lives with 1 and lies above it.
        ("10 -0 10 5 -1 -2", 1, (0, 0, 0, 10, 0, 10), 15),
        # 0 to 3 live together, none throughout. Largest first, the earlier of equals below: 1 at 0, 2 at 30, 0 at 60,
        # and 3 at 70. 4 meets nobody and lies at 0.
        ("10 30 30 5 -3 -0 -1 -2 1 -4", 1, (60, 0, 30, 70, 70, 60, 0, 30, 0, 0), 75),
        # 0 at 0. 1 lives with it and lies at 40. 2 (20 B) lives after 0 but with 1: the gap below 1 is 40 B, it lies at
        # 0. 3 (20 B) lives with 1 and 2: it takes the rest of the gap, at 20.
        ("40 30 -0 20 20 -1 -2 -3 1 -4", 1, (0, 40, 0, 0, 20, 40, 0, 20, 0, 0), 70),
        # 2 (25 B) at 0 leaves 15 of that gap, too few for 3, which would lie above 1, at 70. As it goes beyond the 75 B
        # that live at once, it goes first the next time: 3 at 0, 2 at 20 and 1 at 45, above both.
        ("40 30 -0 25 20 -1 -2 -3 1 -4", 1, (0, 45, 0, 20, 0, 45, 20, 0, 0, 0), 75),
        # Granule 10: 1 B takes 10, 11 B take 20 above it.
        ("1 11", 10, (0, 10), 30),
    ],
)
def test_addresses_that_fit_all_lifetimes(
    requests: str, granule_bytes: int, offsets: tuple[int, ...], pool_bytes: int
) -> None:
    answer = place_planned(written(requests, 1), pool_bytes, granule_bytes)
    assert isinstance(answer, Placed)
    assert (answer.offsets, answer.pool_bytes) == (offsets, pool_bytes)
    sizes = [round_up(each.nbytes, granule_bytes) for each in written(requests, 1) if each.nbytes is not None]
    assert [each for each in answer.deltas if each > 0] == sizes


@pytest.mark.parametrize(
    ("requests", "capacity_bytes", "expected"),
    [
        # 1 lives throughout and lies at 0; 2 (60 B) lies at 20 and would reach to 80. 50 B are free, all above 1.
        (written("40 20 -0 60", 1), 70, Overflow(3, (1,), 50, 50)),
        # Both live throughout: of 15 B, 0 alone is too many, of 25 B 1 is. In the other order 0 would begin at 10.
        (written("20 10", 1), 15, Overflow(0, (), 15, 15)),
        (written("20 10", 1), 25, Overflow(1, (0,), 5, 5)),
        ([Request(1, 10), Request(0, 20)], 10, Overflow(1, (1,), 0, 0)),
    ],
)
def test_a_buffer_above_capacity_overflows(requests: list[Request], capacity_bytes: int, expected: Overflow) -> None:
    assert place_planned(requests, capacity_bytes, 1) == expected
