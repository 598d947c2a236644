"""Ranks and fronts of a few points worked out by hand, and what must hold of any."""

from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.analysis.comparison import pareto_front, ranks

POINTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


@given(POINTS)
def test_a_point_is_on_the_front_unless_another_beats_it(points: list[tuple[int, int]]) -> None:

    def beaten(point: tuple[int, int]) -> bool:
        return any(x <= point[0] and y <= point[1] and (x, y) != point for x, y in points)

    assert pareto_front(points) == tuple(not beaten(point) for point in points)


@given(st.lists(st.integers(-5, 5)))
def test_a_rank_is_one_more_than_the_number_of_lesser_values(values: list[int]) -> None:
    assert ranks(values) == tuple(1 + sum(other < value for other in values) for value in values)
