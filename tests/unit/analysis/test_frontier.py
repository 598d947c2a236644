"""Points of a frontier from what was found for each capacity, in bytes and seconds that are easy to compare."""

from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.analysis.frontier import (
    Bound,
    Frontier,
    FrontierPoint,
    PlannedTime,
    PolicyTimes,
    Searched,
    frontier_points,
)
from vdnnsim.plans.certificate import BoundClass

OFFLOAD, ANY = BoundClass.OFFLOAD, BoundClass.ANY


def searched(capacity: int, seconds: float | None, bound_s: float | None, holds_for: BoundClass = OFFLOAD) -> Searched:
    """What was found for a capacity."""
    plan = None if seconds is None else PlannedTime(seconds, capacity)
    return Searched(capacity, plan, None if bound_s is None else Bound(bound_s, holds_for))


def test_a_plan_for_less_memory_fits_into_more() -> None:
    """For 20 B a slower one was found than for 10 B, for 30 B none; for 40 B one of 5 s."""
    found = (searched(10, 8.0, 7.0), searched(20, 9.0, 6.0), searched(30, None, None), searched(40, 5.0, 5.0))
    points = frontier_points(found)
    assert [(each.plan.iteration_s, each.plan.planned_for_bytes) for each in points] == [*[(8.0, 10)] * 3, (5.0, 40)]
    assert [None if each.bound is None else each.bound.seconds for each in points] == [7.0, 6.0, None, 5.0]
    assert points[0].gap == 8.0 / 7.0 - 1
    assert points[2].gap is None


def test_a_bound_of_a_smaller_class_does_not_hold_for_the_larger() -> None:
    """The bound for any schedule holds for those without recomputation, and not the other way round."""
    few = searched(10, 9.0, 4.0, OFFLOAD), searched(20, 9.0, 6.0, ANY)
    every = searched(10, 9.0, 4.0, ANY), searched(20, 9.0, 6.0, OFFLOAD)
    assert frontier_points(few)[0].bound == Bound(6.0, ANY)
    assert frontier_points(every)[0].bound == Bound(4.0, ANY)


@given(
    st.lists(
        st.tuples(st.none() | st.floats(1.0, 9.0), st.floats(0.1, 9.0), st.sampled_from(BoundClass)),
        min_size=1,
        max_size=9,
    )
)
def test_more_memory_is_never_slower(found: list[tuple[float | None, float, BoundClass]]) -> None:
    """Nor is a bound of one class ever higher; each plan was made for no more memory, each bound for no less."""
    first = searched(0, 9.0, *found[0][1:])
    every = (first, *(searched(number, *each) for number, each in enumerate(found[1:], start=1)))
    points = frontier_points(every)
    times = [each.plan.iteration_s for each in points]
    assert times == sorted(times, reverse=True)
    for number, (each, own) in enumerate(zip(points, every, strict=True)):
        assert each.plan.planned_for_bytes <= each.capacity_bytes
        assert own.plan is None or each.plan.iteration_s <= own.plan.iteration_s
        assert each.bound is not None
        assert own.bound is not None
        assert each.bound.seconds >= own.bound.seconds
        assert each.bound in [later.bound for later in every[number:]]
    if len({each.bound.holds_for for each in every if each.bound is not None}) == 1:
        bounds = [each.bound.seconds for each in points if each.bound is not None]
        assert bounds == sorted(bounds, reverse=True)


def test_the_best_policy_of_a_capacity() -> None:
    """`static` fits from 20 B on, in 9 s; `dynamic` takes 8 s in 30 B and, by a bad choice, 10 s in 40 B."""
    points = tuple(FrontierPoint(nbytes, PlannedTime(5.0, 10), None) for nbytes in (10, 40))
    others = PolicyTimes("static", ((20, 9.0),)), PolicyTimes("dynamic", ((30, 8.0), (40, 10.0)))
    frontier = Frontier("optimal", points, others)
    best = [None, ("static", 9.0), ("dynamic", 8.0), ("dynamic", 8.0)]
    assert [frontier.best_policy(nbytes) for nbytes in (10, 20, 30, 40)] == best
    assert [frontier.point_at(nbytes) for nbytes in (9, 39, 40)] == [None, *points]
