"""Plans for memory that is reserved ahead: the chain of ten kernels in 306 B, of which addresses need some more.

In 306 B nothing is offloaded, and the kernels take 10 s; in 304 B 2 B are, beside which kernels run as fast, in 302 B
they take 12 s, and in 299 B 17 s (test_planner.py).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from types import SimpleNamespace
from typing import cast

import pytest

from tests.unit.planning.test_fitting import Places, fitting
from vdnnsim.dnn.layers import Phase
from vdnnsim.planning import reserved_search
from vdnnsim.planning.deadline import Deadline
from vdnnsim.planning.effort import RESERVED, UNLIMITED, Effort
from vdnnsim.planning.fitting import Best, Candidate, Fitting
from vdnnsim.planning.planner import GOOD, Planner
from vdnnsim.planning.reserved_search import ReservedSearch
from vdnnsim.planning.timetable import Timetable
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import TrainingPlan

KERNELS = 10
LEAST = 292
"""Bytes below which no plan is searched for."""
BELOW_HALF = 1650, 875, 487, 293, 196
"""From 3200 B down to 100 B by halves."""
KEPT = cast("Timetable", SimpleNamespace(free_bytes=[5, -10], options=()))
"""That keeps all, and lacks 10 B by its bytes."""


@dataclass(frozen=True)
class Bytes:
    """A search in so much memory, which finds the plan of the chain's only order; no plan takes less than 9.5 s."""

    nbytes: int
    least_bytes: int = LEAST
    movable: frozenset[int] = frozenset({0})
    near: float = GOOD

    @cached_property
    def _fitting(self) -> Fitting:
        return fitting(Places(self.nbytes), capacity_bytes=self.nbytes)

    @property
    def best(self) -> Best:
        return self._fitting.best

    @property
    def question(self) -> SimpleNamespace:
        return SimpleNamespace(least_bytes=self.least_bytes, all_kept=KEPT, movable=self.movable)

    def lowered(self, timetable: Timetable) -> TrainingPlan:
        return cast("TrainingPlan", timetable)

    def bound_s(self) -> float:
        return 9.5

    def plan(self) -> None:
        self._fitting.first(UNLIMITED)
        self.best.orders.append(self._fitting.order)

    def certified(self, found: Candidate, *, complete: bool) -> TrainingPlan:
        assert complete
        return found.plan


class Addresses(Places):
    """Addresses at which plans for at most so many bytes have room, by layouts or, as it is at once, by none.

    Of the plan that keeps all, it is at once that it lacks what it does by its bytes and what segments do not fill.
    """

    def __init__(self, nbytes: int, lacking_bytes: int = 0, unfilled_bytes: int = 0) -> None:
        super().__init__(nbytes)
        self._lacking_bytes, self._unfilled_bytes = lacking_bytes, unfilled_bytes

    def __call__(self, plan: TrainingPlan) -> Placement | DoesNotFit:
        if cast("Timetable", plan) is KEPT:
            return replace(NO_ROOM, lacking_bytes=10 + self._unfilled_bytes, tries=1)
        found = super().__call__(plan)
        if isinstance(found, Placement):
            return found
        return replace(found, lacking_bytes=self._lacking_bytes, tries=1 if self._lacking_bytes else 4)


NO_ROOM = DoesNotFit(cast("TrainingPlan", None), Pool.DEVICE, 0, 0, 0, Phase.FORWARD, 18, 20, 17, 306, ())


def search(
    places: Places,
    effort: Effort = UNLIMITED,
    least_bytes: int = LEAST,
    kept_s: float = 0.0,
    known: TrainingPlan | None = None,
    known_s: float = inf,
) -> tuple[ReservedSearch, list[int]]:
    searched = list[int]()

    def by_bytes(nbytes: int, *_: object, **__: object) -> Planner:
        searched.append(nbytes)
        return cast("Planner", Bytes(nbytes, least_bytes))

    found = ReservedSearch(by_bytes, places, effort, lambda: kept_s, known, known_s)
    found.search(306)
    # The first is asked for the bound.
    return found, searched[1:]


def seconds_of(found: ReservedSearch) -> float:
    return cast("Timetable", found.found).seconds


def test_the_fastest_plan_is_taken_if_it_has_room() -> None:
    found, searched = search(places := Addresses(306))
    assert (seconds_of(found), found.bound_s) == (10, 9.5)
    assert (places.asked, searched) == ([306], [306])


@pytest.mark.parametrize(("roomy_bytes", "seconds"), [(305, 10), (303, 12)])
def test_plans_for_less_are_searched_until_one_has_room_and_then_for_more(roomy_bytes: int, seconds: float) -> None:
    """That for 302 B, a 64th less, has; between it and 306 B is one for 304 B, and nothing is narrower than a 128th.

    It takes 12 s, more than 1.1 times the bound of 9.5 s, so that one for 297 B is looked at, which takes longer.
    """
    found, searched = search(places := Addresses(roomy_bytes))
    assert seconds_of(found) == pytest.approx(seconds)
    assert places.asked == [306, 302, 304]
    assert searched == [306, 302, 297, 304]


def test_a_plan_near_the_bound_is_followed_by_those_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 s are less than 1.3 times the bound."""
    monkeypatch.setattr(reserved_search, "FAR", 1.3)
    _, searched = search(Addresses(305))
    assert searched == [306, 302, 304]


KNOWN = cast("TrainingPlan", SimpleNamespace(certificate=None))


def test_a_known_plan_that_is_as_fast_in_all_of_the_memory_ends_the_search() -> None:
    """It takes 10 s, as the one for 306 B, which is not placed."""
    found, searched = search(places := Addresses(306), known=KNOWN, known_s=10)
    assert found.found is KNOWN
    assert (places.asked, searched) == ([], [306])


def test_nothing_is_searched_for_where_a_known_plan_is_near_the_bound() -> None:
    """9.5 s; 9.59 s are within a percent."""
    found, searched = search(Addresses(306), known=KNOWN, known_s=9.59)
    assert (found.found, searched) == (KNOWN, [])


def test_plans_are_searched_for_between_one_that_is_no_faster_than_a_known_one_and_one_without_room() -> None:
    """Less than 11 s takes the one for 306 B, which has no room, and that for 304 B; that for 302 B takes 12 s."""
    found, searched = search(places := Addresses(305), known=KNOWN, known_s=11)
    assert seconds_of(found) == 10
    assert (places.asked, searched) == ([306, 304], [306, 302, 304])


def test_a_plan_as_fast_as_one_that_keeps_all_ends_the_search() -> None:
    """That for 302 B takes 12 s; where collectives make one that keeps all take 11.9 s, none takes 1 % less."""
    found, searched = search(Addresses(303), kept_s=11.9)
    assert seconds_of(found) == pytest.approx(12)
    assert searched == [306, 302]


def test_what_segments_take_is_left_to_them() -> None:
    """Beside 7 B of segments, which the plan that keeps all lacks as well, plans for 299 B have room.

    That one takes 17 s, far from the bound, and for less four times as much is left, which an eighth is. So half of
    what is left above the least memory, 292 B, is: 295 B, with a slower plan. For 293 B there is none.
    """
    found, searched = search(places := Addresses(299, 7, 7))
    assert (places.asked, searched) == ([299], [299, 295, 293])
    assert seconds_of(found) == pytest.approx(17, rel=1e-3)


def test_what_segments_take_beyond_is_left_to_them_at_once() -> None:
    """The plan that keeps all lacks 3 B of the 7; that for 303 B lacks 4 B more, and those for 295 and 297 B do not.

    295 B are half of what is left above the least.
    """
    _, searched = search(places := Addresses(299, 4, 3))
    assert (places.asked, searched) == ([303, 295, 297], [303, 295, 293, 297])


@pytest.mark.parametrize(
    ("roomy_bytes", "alone"), [(303, [306, 305, 303]), (0, [306, 305, 303, 301, 299, 298, 296, 294])]
)
def test_plans_that_copy_nothing_are_searched_for_where_those_that_copy_leave_gaps(
    roomy_bytes: int, alone: list[int]
) -> None:
    """Without room for those for 306, 302 and 297 B, in eighths of the 14 B above the least."""
    searched = list[tuple[int, bool]]()

    def by_bytes(nbytes: int, _part: Effort, known: object = (), *, host_bytes: int | None = None) -> Planner:
        assert frozenset() in cast("list[frozenset[int]]", known) or not searched
        searched.append((nbytes, host_bytes is None))
        return cast("Planner", Bytes(nbytes, movable=frozenset()))

    def place(plan: TrainingPlan) -> Placement | DoesNotFit:
        return Addresses(0 if searched[-1][1] else roomy_bytes)(plan)

    found = ReservedSearch(by_bytes, place, UNLIMITED)
    found.search(306)
    assert [nbytes for nbytes, copies in searched if not copies] == alone
    assert [nbytes for nbytes, copies in searched if copies][1:4] == [306, 302, 297]
    assert (found.found is not None) == (roomy_bytes > 0)


def test_less_and_less_is_searched_for_down_to_the_least() -> None:
    """Of 6400 B a 64th, a 16th and so on are left, and from half on half of what is above the least, here of 100 B.

    From 196 B on it would be 48 B, less than a 128th.
    """
    found = ReservedSearch(lambda *_, **__: cast("Planner", None), Addresses(0), UNLIMITED)
    found._most_bytes, found._least_bytes = 6400, 100  # noqa: SLF001 - what it keeps
    assert list(found._amounts(6400)) == [6300, 6000, 5600, 4800, 3200, *BELOW_HALF]  # noqa: SLF001


def test_no_plan_is_placed_twice() -> None:
    """Where none has room: those for 306 B and for less, by half of what is left above the least of any plan.

    For 293 B there is none.
    """
    found, searched = search(places := Addresses(0))
    assert found.found is None
    assert (places.asked, searched) == ([306, 302, 297, 294], [306, 302, 297, 294, 293])


def test_where_the_fastest_is_far_from_the_bound_less_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of those for less is faster than that for 306 B, which has room, so none is placed."""
    monkeypatch.setattr(reserved_search, "FAR", 1.05)
    found, searched = search(places := Addresses(306))
    assert seconds_of(found) == 10
    assert (places.asked, searched) == ([306], [306, 302, 297, 294, 293])


def test_each_search_has_a_part_of_the_effort_that_is_left() -> None:
    """The first 0.3 of 1000 steps; the second, as four tries took 240, 0.3 of 760, and those from the third on 150."""
    parts, effort = list[float](), Effort(1000)

    def by_bytes(nbytes: int, part: Effort, *_: object, **__: object) -> Planner:
        parts.append(part.left)
        return cast("Planner", Bytes(nbytes))

    ReservedSearch(by_bytes, Addresses(0), effort).search(306)
    assert parts.pop(0) == 1000
    assert 4 * RESERVED * KERNELS == 240
    assert parts == pytest.approx([300, 228, 156, 150, 150])


def test_a_search_ends_with_its_deadline() -> None:
    """Which is over when the first plan was placed."""
    places = Addresses(0)
    deadline = Deadline.after(1, lambda: float(len(places.asked)))
    found, searched = search(places, Effort.until(deadline))
    assert found.found is None
    assert (places.asked, searched) == ([306], [306])


def test_a_search_without_a_plan_ends_all() -> None:
    """Of less than the least memory there is none."""
    without = replace(Bytes(306), movable=frozenset())
    object.__setattr__(without, "_fitting", SimpleNamespace(first=lambda _: None, best=Best("", None, 0.0), order=None))
    found = ReservedSearch(lambda *_, **__: cast("Planner", without), Addresses(0), UNLIMITED)
    found.search(306)
    assert found.found is None


def test_a_plan_that_a_search_finds_again_is_not_placed_again() -> None:
    """Each search finds the plan for 306 B, which has no room."""
    searched = list[int]()

    def by_bytes(nbytes: int, *_: object, **__: object) -> Planner:
        searched.append(nbytes)
        return cast("Planner", Bytes(306))

    ReservedSearch(by_bytes, places := Addresses(0), UNLIMITED).search(306)
    assert (places.asked, len(searched)) == ([306], 6)


@pytest.mark.parametrize(("roomy_bytes", "expected"), [(0, [306, 302, 297, 294]), (303, [306, 302])])
def test_while_no_plan_has_room_some_are_searched_for_without_effort(roomy_bytes: int, expected: list[int]) -> None:
    """The first took more than its 200 steps: by then that for 302 B, and where it has no room two more."""
    _, searched = search(Addresses(roomy_bytes), Effort(200))
    assert searched == expected
