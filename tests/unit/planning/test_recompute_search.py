"""The search for what to drop, on a chain of four CONV layers beside a link on which a byte takes 1000 s.

W and dW of the layers hold 2 x (4 x 60 + 12) = 504 B, and with the input and maps of 10 B that wait the most that is
held is 566 B. Sixteen kernels take 1 s each.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import Any

import pytest

from tests.toy import toy_chain, toy_costs, toy_workload
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.planning.deadline import NEVER, PAST, Deadline
from vdnnsim.planning.fluid_bound import Links
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.planning.recomputation import Recomputation
from vdnnsim.planning.recompute_search import DropSearch, Order, Verdict
from vdnnsim.plans.schedule import Run, iteration

WORKLOAD = toy_workload(toy_chain(4))
COSTS = toy_costs(WORKLOAD, {}).table(WORKLOAD)
LINKS = Links(1e-3, 1e-3)
RECOMPUTATION = Recomputation(iteration(WORKLOAD), WORKLOAD, COSTS)


def problem(runs: Sequence[Run], capacity_bytes: int) -> Problem:
    return problem_of(runs, WORKLOAD, COSTS, capacity_bytes)


def search(capacity_bytes: int, *, until: Deadline = NEVER, goal_s: float = 0.0) -> tuple[DropSearch, list[Problem]]:
    """A search, and the problems that it looked at."""
    seen: list[Problem] = []

    def watched(runs: Sequence[Run]) -> Problem:
        seen.append(problem(runs, capacity_bytes))
        return seen[-1]

    return DropSearch(RECOMPUTATION, watched, LINKS, 10**6, until, goal_s, None, None), seen


def at_556(**changes: Any) -> DropSearch:  # noqa: ANN401 - fields of a search
    """A search in 10 B less than all needs, but for some changes."""
    return replace(search(556)[0], **changes)


def test_what_is_dropped_need_not_leave() -> None:
    """At 556 B 10 B too much: they leave and come back in 20,000 s, or a map is computed again in 1 s."""
    kept, dropped = search(556)[0].orders({})

    assert not kept.dropped
    assert kept.optimum.seconds > 20_000
    assert len(dropped.dropped) == 1
    assert dropped.optimum.seconds == pytest.approx(17, rel=1e-3)


def test_every_better_order_is_told() -> None:
    told: list[float] = []
    found = at_556(found=told.append).orders({})

    assert told == [each.optimum.seconds for each in found] == sorted(told, reverse=True)


def test_who_is_as_fast_as_anything_searches_no_more() -> None:
    """At 566 B all fits. Where the kernels alone are the goal, one order is looked at, and otherwise many."""
    ready, looked = search(566, goal_s=16.0)
    other, more = search(566)

    assert [each.dropped for each in ready.orders({})] == [each.dropped for each in other.orders({})] == [frozenset()]
    assert len(looked) == 1 < len(more)


def test_a_search_begins_with_what_is_known() -> None:
    """At 556 B; an order that is the goal is all that is found, and no other is looked at."""
    begin = search(556)[0].orders({})[0]

    known = DropSearch(
        RECOMPUTATION, lambda _: pytest.fail("looked at an order"), LINKS, 10**6, NEVER, 1e9, None, begin
    )

    assert known.orders({}) == [begin]


def test_at_the_end_of_its_time_a_search_has_what_it_found() -> None:
    """While its grace lasts it looks at one order, for it has nothing yet; behind that at none."""
    late, looked = search(556, until=Deadline(((lambda: 0.1, 0.0),)))

    assert [each.dropped for each in late.orders({})] == [frozenset()]
    assert len(looked) == 1
    assert not late.is_complete
    later, looked = search(556, until=PAST)
    assert (later.orders({}), looked, later.is_complete) == ([], [], False)


def test_more_time_adds_to_what_was_found() -> None:
    """On a chain of eight layers of any sizes; the clock goes on by 1 s whenever it is read."""
    net = GraphBuilder("uneven", MapShape(5, 1, 1))
    y = 0
    for number, channels in enumerate((3, 10, 14, 13, 13, 2, 5, 2)):
        y = net.conv(f"conv{number}", y, channels, 1, relu=False)
    net.begin_classifier()
    workload = toy_workload(net.build(net.fc("fc", y, 1, relu=False)))
    costs = toy_costs(workload, {}).table(workload)
    runs = iteration(workload)
    most = max(each.held_bytes + each.waiting_bytes for each in problem_of(runs, workload, costs, 0).kernels)
    found = []
    for seconds in (*range(0, 600, 13), 10**6):
        limited = DropSearch(
            Recomputation(runs, workload, costs),
            lambda order: problem_of(order, workload, costs, most - 50),
            LINKS,
            10**6,
            Deadline(((count().__next__, seconds),)),
            0.0,
            None,
            None,
        )
        found.append([each.dropped for each in limited.orders({})])

    assert all(more[: len(less)] == less for less, more in pairwise(found))
    assert len(found[0]) < len(found[-1])


def test_who_interrupts_a_search_gets_what_it_found() -> None:
    def interrupted(runs: Sequence[Run]) -> Problem:
        if any(each.repeat for each in runs):
            raise KeyboardInterrupt
        return problem(runs, 556)

    found = DropSearch(RECOMPUTATION, interrupted, LINKS, 10**6, NEVER, 0.0, None, None).orders({})

    assert [each.dropped for each in found] == [frozenset()]


def test_where_nothing_fits_nothing_is_found() -> None:
    """Below 524 B kernel 0 cannot run."""
    assert search(523)[0].orders({}) == []


def dropped_in_turn(again: dict[int, float]) -> list[list[str]]:
    """The layers that run again in the orders that a search looks at, by name."""
    found, looked = search(556)
    found.orders(again)
    return [sorted(each.run.layer.name for each in seen.kernels if each.run.repeat) for seen in looked]


def test_what_a_bound_computes_again_is_tried() -> None:
    """The map of conv3 in whole, that of conv2 in part: those above each threshold are an order."""
    conv2, conv3 = RECOMPUTATION.droppable[1:3]

    tried = dropped_in_turn({conv2: 0.2, conv3: 1.0})

    assert tried[0] == []
    assert ["conv3"] in tried
    assert ["conv2", "conv3"] in tried


def test_of_maps_that_are_alike_a_share_is_dropped_evenly_spread() -> None:
    """Four maps of 10 B are alike, of which the bound computes again 0.3: the second; the one of 2 B stays.

    The best set drops one of the four, conv3. A quarter more are the first and the third.
    """
    conv2, conv3 = RECOMPUTATION.droppable[1:3]

    tried = dropped_in_turn({conv2: 0.2, conv3: 1.0})

    assert tried[:4] == [[], ["conv3"], ["conv2", "conv3"], ["conv2"]]
    assert ["conv1", "conv3"] in tried


def test_from_the_best_set_its_shares_are_adjusted() -> None:
    """On four to six equal layers, links of 0.001 and 1 B/s, in any memory: each order is better than the last."""
    for layers in (4, 5, 6):
        workload = toy_workload(toy_chain(layers))
        costs = toy_costs(workload, {}).table(workload)
        runs = iteration(workload)
        most = max(each.held_bytes + each.waiting_bytes for each in problem_of(runs, workload, costs, 0).kernels)
        for links in (LINKS, Links(1, 1)):
            for capacity in range(most - 30, most, 4):

                def within(order: Sequence[Run], capacity: int = capacity) -> Problem:
                    return problem_of(order, workload, costs, capacity)  # noqa: B023 - called within this round

                recomputation = Recomputation(runs, workload, costs)
                found = DropSearch(recomputation, within, links, 10**6, NEVER, 0.0, None, None).orders({})
                assert all(more.seconds < less.seconds for less, more in pairwise(found))


def test_what_finds_no_room_is_kept_aside_and_what_loses_time_counts_with_it() -> None:
    """At 556 B orders that drop one map alone find no room; others lose 1 s, so that two, in 18 s, take 19 s."""

    def judged(order: Order, _until: Deadline) -> Verdict:
        return Verdict(lacking_bytes=3) if len(order.dropped) == 1 else Verdict(lost_s=1.0)

    found = at_556(judged=judged)
    best = found.orders({})[-1]

    assert {len(each.dropped) for each in found.displaced} == {1}
    assert len(best.dropped) == 2
    assert best.seconds == pytest.approx(19, rel=1e-3)


def test_while_nothing_finds_room_the_search_goes_on_from_what_lacks_least() -> None:
    """Each order lacks as many bytes as it keeps maps."""
    tried = list[frozenset[int]]()

    def judged(order: Order, _until: Deadline) -> Verdict:
        tried.append(order.dropped)
        return Verdict(lacking_bytes=9 - len(order.dropped))

    found = at_556(judged=judged)

    assert found.orders({}) == []
    assert max(map(len, tried)) >= 2
    assert [each.dropped for each in found.displaced] == tried


def test_segments_are_tried_first() -> None:
    """Of maps of 10 B two segments make two each: that of conv1 goes, and that of conv2 passes.

    Of three to twelve segments one makes one map at most, and nothing goes. Of more the last makes the loss alone and
    the one before it ends behind fc, whose output nobody needs again: that of conv4 goes.
    """
    found, looked = search(556)

    found.begin_with_segments()

    assert [[run.layer.name for run in again(seen)] for seen in looked] == [[], ["conv1"], ["conv4"]]


def again(seen: Problem) -> list[Run]:
    return [each.run for each in seen.kernels if each.run.repeat]
