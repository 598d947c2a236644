"""The edge between what fits and what does not, and how many trials find it."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.study.edge import Need, beyond, find_edge


@st.composite
def shares(draw: st.DrawFn) -> tuple[int, list[float]]:
    """A largest batch, and shares that have nothing to do with it."""
    largest = draw(st.integers(1, 60))
    values = draw(st.lists(st.floats(0, 5), min_size=largest + 1, max_size=largest + 1))
    return largest, values


@given(shares(), st.data())
def test_the_edge_is_found_for_any_shares(guide: tuple[int, list[float]], data: st.DataObject) -> None:
    largest, values = guide
    edge, guess = data.draw(st.integers(0, largest)), data.draw(st.integers(1, largest))
    asked: list[int] = []

    def need(batch: int) -> Need:
        assert 1 <= batch <= largest
        asked.append(batch)
        return Need(batch <= edge, values[batch])

    assert find_edge(need, guess, largest) == (edge, edge + 1)
    assert len(asked) == len(set(asked))


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.data())
def test_where_larger_batches_fit_again_the_answer_is_an_edge(fits: list[bool], data: st.DataObject) -> None:
    """It fits, and one image more does not; no image counts as fitting, more than the largest batch as not."""
    guess = data.draw(st.integers(1, len(fits)))
    edge, more = find_edge(lambda batch: Need(fits[batch - 1], batch / 7), guess, len(fits))
    assert more == edge + 1
    assert edge == 0 or fits[edge - 1]
    assert edge == len(fits) or not fits[edge]


def tried(guess: int, edge: int, share: Callable[[int], float]) -> int:
    """Find an edge by shares that are at most 1 up to it; return how many batches it took."""
    batches: list[int] = []

    def need(batch: int) -> Need:
        batches.append(batch)
        return Need(share(batch) <= 1, share(batch))

    assert find_edge(need, guess) == (edge, edge + 1)
    return len(batches)


@pytest.mark.parametrize("edge", [1, 9, 127, 128, 4711, 999_999])
def test_on_a_line_four_batches_are_enough(edge: int) -> None:
    """The guess, the one that a line through the origin and it gives, that of the line through both, its neighbour."""
    assert tried(100, edge, lambda batch: 0.3 + 0.7 * batch / (edge + 0.5)) <= 4


def test_useless_shares_cost_no_more_than_twice_a_bisection() -> None:
    """Memory that is always just full: 20 doublings, then 20 halvings, each behind an estimate that was of no use."""
    assert tried(1, 600_000, lambda batch: 1.0 if batch <= 600_000 else 1.0 + 1e-9 * batch) <= 4 + 20 + 2 * 20


@pytest.mark.parametrize(("hole", "largest", "edge"), [(144, 10_000, 152), (144, 150, 150), (148, 10_000, 152)])
def test_larger_batches_are_tried_where_memory_shrinks(hole: int, largest: int, edge: int) -> None:
    """Up to 152 images fit, but for one number. From 143 on a quarter more in 12 steps of two is 167, 165, ..., 145.

    151 is the first to fit, then 152 of these between it and 153; above it each third is tried, and none fits.
    """
    tried: list[int] = []

    def need(batch: int) -> Need:
        tried.append(batch)
        return Need(batch <= 152 and batch != hole, batch / 152)

    assert beyond(need, 143, largest) == (edge, edge + 1)
    assert max(tried) <= min(largest, 152 + 12 * 3)


def test_of_small_batches_each_is_tried() -> None:
    """None of 3 to 14 fits, so the answer stays; with 9 that fits it is 9."""
    assert beyond(lambda batch: Need(batch < 3, 1.0), 2, 100) == (2, 3)
    assert beyond(lambda batch: Need(batch in (1, 2, 9), 1.0), 2, 100) == (9, 10)
