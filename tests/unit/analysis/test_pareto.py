"""Ranks and fronts of a few points worked out by hand, and what must hold of any."""

from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.analysis.comparison import pareto_front, ranks

POINTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


def test_equal_values_share_a_rank_and_leave_out_those_behind_it() -> None:
    assert ranks([3.0, 1.0, 3.0, 2.0, 9.0]) == (3, 1, 3, 2, 5)
    assert ranks([]) == ()


def test_the_front_are_those_that_none_beats() -> None:
    """(2, 5), (3, 3) and (5, 1) trade one for the other; (3, 4) and (4, 3) lose to (3, 3) in one of the two alone."""
    points = [(2, 5), (3, 4), (3, 3), (4, 3), (5, 1), (6, 1), (7, 7)]

    assert pareto_front(points) == (True, False, True, False, True, False, False)


def test_equal_points_are_on_the_front_together_or_not_at_all() -> None:
    assert pareto_front([(1, 2), (1, 2), (2, 2), (2, 2)]) == (True, True, False, False)


@given(POINTS)
def test_a_point_is_on_the_front_unless_another_beats_it(points: list[tuple[int, int]]) -> None:
    """The definition, point against point."""

    def beaten(point: tuple[int, int]) -> bool:
        return any(x <= point[0] and y <= point[1] and (x, y) != point for x, y in points)

    assert pareto_front(points) == tuple(not beaten(point) for point in points)


@given(st.lists(st.integers(-5, 5)))
def test_a_rank_is_one_more_than_the_number_of_lesser_values(values: list[int]) -> None:
    assert ranks(values) == tuple(1 + sum(other < value for other in values) for value in values)
