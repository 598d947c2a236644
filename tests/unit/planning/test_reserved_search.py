"""Plans for memory that is reserved ahead: the chain of ten kernels in 306 B, of which addresses need some more.

In 306 B nothing is offloaded, and the kernels take 10 s; in 304 B 2 B are, beside which kernels run as fast, and in
299 B they take 17 s (test_planner.py).
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from tests.unit.planning.test_fitting import LINKS, Places, fitting
from vdnnsim.planning import reserved_search
from vdnnsim.planning.effort import RESERVED, UNLIMITED, Effort
from vdnnsim.planning.fitting import Candidate
from vdnnsim.planning.fluid_bound import Optimum, optimum_of
from vdnnsim.planning.planner import Planner
from vdnnsim.planning.problem import Problem
from vdnnsim.planning.recompute_search import Order
from vdnnsim.planning.reserved_search import ReservedSearch
from vdnnsim.planning.timetable import Timetable
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import TrainingPlan

KERNELS = 10
LEAST = 292
"""Bytes below which no plan is searched for."""


class Bytes:
    """A search in so much memory, which finds the plan of the chain's only order."""

    def __init__(self, nbytes: int, least_bytes: int = LEAST) -> None:
        self._fitting = fitting(Places(nbytes), capacity_bytes=nbytes)
        self.best = self._fitting.best
        self.question = SimpleNamespace(
            least_bytes=least_bytes, optimum=self._optimum, of_all_rounds=lambda seconds: seconds
        )

    def plan(self) -> TrainingPlan:
        self._fitting.first(UNLIMITED)
        self.best.orders.append(self._fitting.order)
        return cast("TrainingPlan", SimpleNamespace(certificate=SimpleNamespace(bound_s=9.5)))

    def fitted(self, order: Order, effort: Effort) -> Candidate | None:
        made = replace(self._fitting, order=order).planned(order.problem, order.optimum, effort)
        return made if isinstance(made, Candidate) else None

    def certified(self, found: Candidate, *, complete: bool) -> TrainingPlan:
        assert complete
        return found.plan

    def _optimum(self, problem: Problem, _on_host: object, effort: Effort) -> Optimum | None:
        return optimum_of(problem, LINKS, 1000, effort)


class Addresses(Places):
    """Addresses at which plans for at most so many bytes have room, by layouts or, as it is at once, by none."""

    def __init__(self, nbytes: int, lacking_bytes: int = 0) -> None:
        super().__init__(nbytes)
        self._lacking_bytes = lacking_bytes

    def __call__(self, plan: TrainingPlan) -> Placement | DoesNotFit:
        found = super().__call__(plan)
        if isinstance(found, Placement):
            return found
        return replace(found, lacking_bytes=self._lacking_bytes, tries=1 if self._lacking_bytes else 4)


def search(places: Places, effort: Effort = UNLIMITED, least_bytes: int = LEAST) -> tuple[ReservedSearch, list[int]]:
    searched = list[int]()

    def by_bytes(nbytes: int, *_: object) -> Planner:
        searched.append(nbytes)
        return cast("Planner", Bytes(nbytes, least_bytes))

    found = ReservedSearch(by_bytes, places, effort, effort)
    found.search(306)
    return found, searched


def seconds_of(found: ReservedSearch) -> float:
    return cast("Timetable", found.found).seconds


def test_the_fastest_plan_is_taken_if_it_has_room() -> None:
    found, searched = search(places := Addresses(306))
    assert (seconds_of(found), found.bound_s) == (10, 9.5)
    assert (places.asked, searched) == ([306], [306])


def test_a_plan_that_leaves_a_little_is_placed_next() -> None:
    """That for 302 B, a 64th less, has room; searches for as much and for less find none that is faster.

    They go on as it is far above the bound, until half of what is left above the least memory of any plan, 292 B.
    """
    found, searched = search(places := Addresses(305))
    assert seconds_of(found) == pytest.approx(12)
    assert (places.asked, searched) == ([306, 302], [306, 302, 299])


def test_what_segments_take_is_left_to_them() -> None:
    """Beside 7 B of segments, plans for 299 B may have room; one for 295 B, a 64th less, has, in 8 s more."""
    found, searched = search(places := Addresses(299, 7))
    assert seconds_of(found) == pytest.approx(25, rel=1e-3)
    assert (places.asked, searched) == ([306, 295], [306, 295])


def test_no_plan_is_placed_twice() -> None:
    """Where none has room: those for 306 and 302 B, and in further searches those that they find."""
    found, searched = search(places := Addresses(0))
    assert found.found is None
    assert places.asked[:2] == [306, 302]
    assert len(places.asked) == len(set(places.asked))
    assert searched[0] == 306


def test_until_one_has_room_plans_are_placed_however_slow() -> None:
    """The plan for 302 B takes 12 s, a fifth more than that for 306 B; as it has room, as much is searched for next."""
    found, searched = search(places := Addresses(305))
    assert found.found_s == pytest.approx(12)
    assert found.found_s > 10 * reserved_search.FAR
    assert (places.asked, searched[:2]) == ([306, 302], [306, 302])


def test_a_search_far_from_the_bound_takes_from_more_effort() -> None:
    """The first search has 0.3 of 1000 steps; that for what the first plan with room takes 0.6 of 2000."""
    parts, one, more = list[float](), Effort(1000), Effort(2000)

    def by_bytes(nbytes: int, part: Effort, _known: object) -> Planner:
        parts.append(part.end)
        return cast("Planner", Bytes(nbytes, LEAST))

    ReservedSearch(by_bytes, Addresses(305), one, more).search(306)
    assert parts[:2] == pytest.approx([300, 1200])


@pytest.mark.parametrize(("lacking_bytes", "left"), [(0, [302, 287]), (1, [287]), (2, [])])
def test_parts_that_lack_as_much_are_left_out(lacking_bytes: int, left: list[int]) -> None:
    """A 64th and a 16th of 306 B are 4 and 19 B; at least 16 times what lacked is left. For less there is no plan."""
    planner = Bytes(306, 100)
    planner.plan()
    found = ReservedSearch(lambda *_: cast("Planner", planner), Addresses(0), UNLIMITED, UNLIMITED)
    found._most_bytes, found._lacking_bytes = 306, lacking_bytes  # noqa: SLF001 - what it keeps
    orders = found._leaner(cast("Planner", planner), 306)  # noqa: SLF001
    assert [each.problem.capacity_bytes for each in orders] == left


def test_searches_go_on_with_what_the_last_plan_with_room_was_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 306, 305 and 304 B finds a plan with room for a byte less, which is searched for next.

    That of 303 B is for as much; two more searches are for a 64th and a 32nd of 306 B less.
    """
    seconds = {306: 12.0, 305: 11.5, 304: 11.0, 303: 10.5}

    def searched_for(found: ReservedSearch, nbytes: int) -> int:
        searched.append(nbytes)
        if nbytes in seconds:
            found.found_s, found._roomy_bytes = seconds[nbytes], max(303, nbytes - 1)  # noqa: SLF001 - what it keeps
        return LEAST

    searched = list[int]()
    monkeypatch.setattr(ReservedSearch, "_search", searched_for)
    ReservedSearch(lambda *_: cast("Planner", None), Addresses(0), UNLIMITED, UNLIMITED).search(306)
    assert searched == [306, 305, 304, 303, 302, 299]


def test_a_search_that_finds_what_had_no_room_does_not_place_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second search finds the plan for 302 B, which the first has placed; all three parts are left in turn."""
    monkeypatch.setattr(reserved_search, "FAR", 1.5)
    found, searched = search(places := Addresses(0), least_bytes=100)
    assert found.found is None
    assert len(places.asked) == len(set(places.asked))
    assert searched == [306, 302, 297, 287]


def test_a_search_ends_with_its_effort() -> None:
    """Four tries to place ten kernels."""
    effort = Effort(4 * RESERVED * KERNELS)
    found, searched = search(places := Addresses(0), effort)
    assert found.found is None
    assert (places.asked, searched) == ([306], [306])
