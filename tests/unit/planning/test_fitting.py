"""Plans of an order that does not fit for fragmentation: the chain of ten kernels at 306 B, where its bytes do.

A request that fails lacks 1 B each time: plans are made for 306, 305, 303 and 299 B, and in 291 B none runs.
"""

from dataclasses import replace
from itertools import count
from math import inf
from types import SimpleNamespace
from typing import cast

import pytest

from tests.unit.planning.chain_of_ten_kernels import chain_problem, wait_of
from tests.unit.planning.test_offload import uneven_problem
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.planning.deadline import Deadline
from vdnnsim.planning.effort import UNLIMITED, Effort
from vdnnsim.planning.fitting import Best, Candidate, Fitting
from vdnnsim.planning.fluid_bound import Links, optimum_of
from vdnnsim.planning.offload import Copies
from vdnnsim.planning.problem import Option, Problem
from vdnnsim.planning.recompute_search import Order, Verdict
from vdnnsim.planning.timetable import Movement, Timetable
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import TrainingPlan

LINKS = Links(1, 1)


class Places:
    """Places plans that were made for at most so many bytes."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.asked = nbytes, list[int]()

    def __call__(self, plan: TrainingPlan) -> Placement | DoesNotFit:
        capacity = cast("Timetable", plan).movement.problem.capacity_bytes
        self.asked.append(capacity)
        if capacity <= self.nbytes:
            return Placement({}, 0, 0)
        of_maps = cast("TrainingPlan", SimpleNamespace(buffers=[SimpleNamespace(kind=BufferKind.FEATURE_MAP)]))
        return DoesNotFit(of_maps, Pool.DEVICE, 0, 0, 0, Phase.FORWARD, 18, 20, 17, capacity, ())


def fitting(places: Places, found: Candidate | None = None, capacity_bytes: int = 306) -> Fitting:
    """Of plans that are their timetables."""
    best = Best("optimal", None, 0.0, found)
    plan_of, seconds_of = (lambda each: cast("TrainingPlan", each)), (lambda plan: cast("Timetable", plan).seconds)
    return Fitting(order(capacity_bytes), best, plan_of, places, seconds_of, Copies(float, float, LINKS), 1000, 1, None)


def order(capacity_bytes: int = 306) -> Order:
    return order_of(chain_problem(capacity_bytes))


def order_of(problem: Problem) -> Order:
    optimum = optimum_of(problem, LINKS, 1000, UNLIMITED)
    assert optimum is not None
    return Order(frozenset(), problem, optimum, 0.0)


def test_an_order_loses_what_planning_for_less_memory_costs() -> None:
    """Nothing is offloaded, and the kernels take 10 s."""
    made = fitting(places := Places(306))
    assert made.judged(UNLIMITED) == Verdict()
    assert places.asked == [306]
    assert made.best.found is not None
    assert made.best.found.seconds == 10
    # At 299 B it takes 17 s (test_planner.py): 7 s more than its own.
    made = fitting(places := Places(299))
    verdict = made.judged(UNLIMITED)
    assert verdict.lost_s == pytest.approx(7, rel=1e-3)
    assert verdict.lacking_bytes == 0
    assert places.asked == [306, 305, 303, 299]
    # The best takes 10 s; at 305 B 1 B is offloaded, which kernels hide, and at 303 B they do not.
    first = fitting(Places(306))
    first.judged(UNLIMITED)
    made = fitting(places := Places(0), first.best.found)
    assert made.judged(UNLIMITED) == Verdict(lacking_bytes=1)
    assert places.asked == [306]


def test_an_order_loses_what_whole_buffers_move_beyond_parts_of_them() -> None:
    """At 299 B the input in whole takes 25 s, parts of it 17 s (test_offload.py); a fifth of that is no loss.

    At 306 B nothing is moved, and at 293 B no whole buffers are enough.
    """
    verdict = fitting(Places(0), capacity_bytes=299).rounded(UNLIMITED)
    assert verdict.lost_s == pytest.approx(25 - 17 * 1.2, rel=1e-3)
    assert verdict.bulky == {wait_of("map input").buffer}
    assert fitting(Places(0)).rounded(UNLIMITED) == Verdict()
    assert fitting(Places(0), capacity_bytes=293).rounded(UNLIMITED) == Verdict(lacking_bytes=1)


@pytest.mark.parametrize(
    ("capacity_bytes", "until", "asked"),
    [
        (306, UNLIMITED, [306, 305, 303, 299]),
        # At most five: those for 320, 319, 317, 313 and 305 B, of which the first four, without offloads, are one.
        (320, UNLIMITED, [320, 305]),
        # Without effort there is one.
        (306, Effort(0.0), [306]),
    ],
)
def test_an_order_that_never_fits_lacks_what_it_did_first(capacity_bytes: int, until: Effort, asked: list[int]) -> None:
    """A refused plan is remembered."""
    made = fitting(places := Places(0), capacity_bytes=capacity_bytes)
    for _ in range(2):
        assert made.judged(until) == Verdict(lacking_bytes=1)
        assert places.asked == asked
    assert made.best.found is None


def test_a_search_ends_at_its_deadline() -> None:
    """In 306 B plans for at most 299 B fit; of sixty-fourths that is 296 B, in 23 s.

    The clock advances by 1 s whenever it is read.

    Without a plan it goes on for the grace, and the more time it has the faster is what it finds.
    """
    complete, times = list[bool](), list[float]()
    for seconds in (*range(0, 120, 3), 10**6):
        made = fitting(Places(299))
        effort = Effort.until(Deadline(((count().__next__, seconds),)))
        made.search(effort)
        complete.append(not effort.is_cut)
        times.append(made.best.found.seconds if made.best.found else inf)
    assert times == sorted(times, reverse=True)
    assert (complete[0], times[0]) == (False, inf)
    assert complete[-1]
    assert times[-1] == pytest.approx(23, rel=1e-3)
    known = fitting(Places(306))
    known.judged(UNLIMITED)
    late = Effort.until(Deadline.after(-1.0))
    fitting(Places(306), known.best.found).search(late)
    assert late.is_cut


@pytest.mark.parametrize(("call_s", "copied"), [(1, [10, 22]), (3, [32])])
def test_small_buffers_stay_where_the_host_takes_long_for_a_copy(call_s: int, copied: list[int]) -> None:
    """At 924 B kernel 5 lacks 32 B (test_offload.py): the input and 22 B of the map of conv1, or 32 B of that.

    Both are offloaded until 32, kernel 5 ends at 33, the map is back at 55, the input at 65, and kernel 9 ends at 66.
    The map alone is offloaded from 1 to 33 and back at 66, and 9 ends at 68. A replay adds the host's calls.
    """
    made = replace(fitting(Places(1000)), order=order_of(uneven_problem()))
    made = replace(made, replay=lambda plan: replayed_s(cast("Timetable", plan), call_s))
    made.search(UNLIMITED)
    assert made.best.found is not None
    assert [each.nbytes for each in made.best.found.timetable.movement.chunks] == copied


def replayed_s(timetable: Timetable, call_s: int) -> float:
    return timetable.seconds + call_s * len(timetable.movement.chunks)


def test_workspaces_get_smaller_until_the_deadline() -> None:
    """Kernel 5 has workspaces of 3, 2 and 1 B, each of which is refused, and time for one."""
    problem = chain_problem(306)
    kernel = problem.kernels[5]
    options = [Option(kernel.options[0].kernel, 1.0, nbytes) for nbytes in (3, 2, 1)]
    kernels = (*problem.kernels[:5], replace(kernel, options=tuple(options)), *problem.kernels[6:])
    optimum = optimum_of(replace(problem, kernels=kernels), LINKS, 1000, UNLIMITED)
    assert optimum is not None
    asked = list[int]()

    def refused(plan: TrainingPlan) -> DoesNotFit:
        asked.append(cast("Timetable", plan).options[5].workspace_bytes)
        buffers = [SimpleNamespace(kind=BufferKind.WORKSPACE)]
        of_workspace = cast("TrainingPlan", SimpleNamespace(buffers=buffers))
        run = kernel.run
        return DoesNotFit(of_workspace, Pool.DEVICE, 0, 0, run.layer.index, run.phase, asked[-1], 20, 0, 306, ())

    made = replace(fitting(Places(0)), order=replace(order(), problem=replace(problem, kernels=kernels)), place=refused)
    movement = Movement(made.order.problem, 5, [], float, float)
    fastest = [each.options[0] for each in kernels]
    assert made._downgraded(movement, fastest, None, Effort(deadline=Deadline(((count().__next__, 2),)))) is None  # noqa: SLF001
    assert asked == [3, 2]
