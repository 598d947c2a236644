"""The recomputation search, on a chain of four CONV layers with a link on which a byte takes 1000 s.

W and dW of the layers hold 2 x (4 x 60 + 12) = 504 B, and the peak with the input and maps of 10 B is 566 B. Sixteen
kernels take 1 s each.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from math import inf
from typing import Any

import pytest

from tests.toy import toy_chain, toy_costs, toy_graph, toy_workload
from vdnnsim.planning import recompute_search as module
from vdnnsim.planning.deadline import Deadline
from vdnnsim.planning.effort import UNLIMITED, Effort
from vdnnsim.planning.fluid_bound import Links
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.planning.recomputation import Recomputation
from vdnnsim.planning.recomputation_bound import Relaxed
from vdnnsim.planning.recompute_search import DropSearch, Order, Verdict
from vdnnsim.planning.restored import Restored
from vdnnsim.plans.schedule import Run, iteration

WORKLOAD = toy_workload(toy_chain(4))
COSTS = toy_costs(WORKLOAD, {}).table(WORKLOAD)
LINKS = Links(1e-3, 1e-3)
RECOMPUTATION = Recomputation(iteration(WORKLOAD), WORKLOAD, COSTS)


def problem(runs: Sequence[Run], capacity_bytes: int) -> Problem:
    return problem_of(runs, WORKLOAD, COSTS, capacity_bytes)


def drop_search(
    problem_of: Callable[[Sequence[Run]], Problem],
    recomputation: Recomputation = RECOMPUTATION,
    *,
    links: Links = LINKS,
    effort: Effort = UNLIMITED,
    goal_s: float = 0.0,
    begin: Order | None = None,
) -> DropSearch:
    return DropSearch(recomputation, problem_of, links, 10**6, effort, goal_s, None, begin)


def ending(deadline: Deadline) -> Effort:
    """An effort without a limit until a deadline."""
    return Effort.until(deadline)


def search(capacity_bytes: int, *, effort: Effort = UNLIMITED, goal_s: float = 0.0) -> tuple[DropSearch, list[Problem]]:
    seen: list[Problem] = []

    def watched(runs: Sequence[Run]) -> Problem:
        seen.append(problem(runs, capacity_bytes))
        return seen[-1]

    return drop_search(watched, effort=effort, goal_s=goal_s), seen


def at_556(**changes: Any) -> DropSearch:  # noqa: ANN401 - fields of a search
    """A search in 10 B less than all needs, but for some changes."""
    return replace(search(556)[0], **changes)


def test_a_dropped_map_is_not_offloaded_and_every_better_order_is_reported() -> None:
    """At 556 B 10 B lack: copied in 20,000 s, or recomputed in 1 s."""
    kept, dropped = search(556)[0].orders()
    assert not kept.dropped
    assert kept.optimum.seconds > 20_000
    assert len(dropped.dropped) == 1
    assert dropped.optimum.seconds == pytest.approx(17, rel=1e-3)
    # Every better order is reported.
    seconds: list[float] = []
    found = at_556(found=seconds.append).orders()
    assert seconds == [each.optimum.seconds for each in found] == sorted(seconds, reverse=True)
    # At 556 B; an order that reaches the goal is the only one.
    begin = search(556)[0].orders()[0]
    known = drop_search(lambda _: pytest.fail("tried an order"), goal_s=1e9, begin=begin)
    assert known.orders() == [begin]


def test_a_search_ends_at_its_goal() -> None:
    """At 556 B, where without a goal a faster order is found; here the first one is fast enough."""
    ready, looked = search(556, goal_s=1e9)
    assert [each.dropped for each in ready.orders()] == [frozenset()]
    assert len(looked) == 1


def test_searches_that_end_early() -> None:
    """While its grace lasts it tries one order, as it has none yet; later none."""
    late, looked = search(556, effort=ending(Deadline(((lambda: 0.1, 0.0),))))
    assert [each.dropped for each in late.orders()] == [frozenset()]
    assert len(looked) == 1
    assert late.effort.is_cut
    later, looked = search(556, effort=ending(Deadline.after(-1.0)))
    assert (later.orders(), looked, later.effort.is_cut) == ([], [], True)

    # An interrupted search returns what it found.
    def interrupted(runs: Sequence[Run]) -> Problem:
        if any(each.repeat for each in runs):
            raise KeyboardInterrupt
        return problem(runs, 556)

    found = drop_search(interrupted).orders()
    assert [each.dropped for each in found] == [frozenset()]
    # Below 524 B kernel 0 cannot run.
    assert search(523)[0].orders() == []


def test_more_time_only_adds_orders() -> None:
    """On a chain of eight uneven layers; the clock advances by 1 s whenever it is read."""
    widths = enumerate((3, 10, 14, 13, 13, 2, 5, 2))
    workload = toy_workload(toy_graph("; ".join(f"conv{number} conv {width}" for number, width in widths)))
    costs = toy_costs(workload, {}).table(workload)
    runs = iteration(workload)
    most = max(each.held_bytes + each.waiting_bytes for each in problem_of(runs, workload, costs, 0).kernels)
    found = []
    for seconds in (*range(0, 600, 61), 10**6):
        limited = drop_search(
            lambda order: problem_of(order, workload, costs, most - 50),
            Recomputation(runs, workload, costs),
            effort=ending(Deadline(((count().__next__, seconds),))),
        )
        found.append([each.dropped for each in limited.orders()])

    assert all(more[: len(less)] == less for less, more in pairwise(found))
    assert len(found[0]) < len(found[-1])


def relaxed_to(monkeypatch: pytest.MonkeyPatch, *solutions: dict[int, float]) -> list[Restored]:
    """Let relaxations have these solutions, and then none; return what they know of orders."""
    left, known = list(solutions), list[Restored]()

    def relaxed(_problem: Problem, _links: Links, _host: int, _effort: Effort, made: Restored) -> Relaxed:
        known.append(made)
        return Relaxed(16.0, left.pop(0)) if left else Relaxed(inf, {})

    monkeypatch.setattr(module, "recomputation_bound", relaxed)
    return known


def recomputed(seen: Sequence[Problem]) -> list[list[str]]:
    """The layers recomputed in each order, by name."""
    return [sorted(each.run.layer.name for each in order.kernels if each.run.repeat) for order in seen]


def test_the_relaxation_is_rounded_and_spread_over_equal_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map of conv3 in whole, of conv2 in part: those above each threshold are tried.

    Of four equal maps of 10 B the relaxation recomputes 0.3 on average: the second; the one of 2 B is kept. Both are
    restored for dW of fc (kernel 8) and of conv4 (10): fc reads the map of conv4, conv4 that of conv3. So conv3 is
    restored before 10, and conv2, which conv3 is made of, as well; with that the solution is the same, and the last.
    The best set drops one of the four, conv2. An eighth more, half a map, is the last of the three others, where sixths
    that are counted from a half on reach one.
    """
    conv2, conv3 = RECOMPUTATION.droppable[1:3]
    known = relaxed_to(monkeypatch, *[{conv2: 0.2, conv3: 1.0}] * 3)
    found, looked = search(556)

    found.orders()

    tried = recomputed(looked)
    assert tried[:4] == [[], ["conv2", "conv3"], ["conv3"], ["conv2"]]
    assert ["conv2", "conv4"] in tried
    assert [each.until for each in known] == [{}, {conv2: 10, conv3: 10}]


def test_from_the_best_set_its_shares_are_adjusted() -> None:
    """On four and six equal layers, links of 0.001 and 1 B/s, in steps of 10 B: each order is better than the last."""
    for layers in (4, 6):
        workload = toy_workload(toy_chain(layers))
        costs = toy_costs(workload, {}).table(workload)
        runs = iteration(workload)
        most = max(each.held_bytes + each.waiting_bytes for each in problem_of(runs, workload, costs, 0).kernels)
        for links in (LINKS, Links(1, 1)):
            for capacity in range(most - 30, most, 10):
                within = partial(problem_of, workload=workload, costs=costs, capacity_bytes=capacity)
                found = drop_search(within, Recomputation(runs, workload, costs), links=links).orders()
                assert all(more.seconds < less.seconds for less, more in pairwise(found))


def test_orders_that_fragment_are_set_aside_and_lost_time_counts() -> None:
    """At 556 B orders that drop one map lack 3 B; the next relaxation has 553 B. Two, in 18 s, lose 1 s more."""

    def judged(order: Order, _effort: Effort) -> Verdict:
        return Verdict(lacking_bytes=3) if len(order.dropped) == 1 else Verdict(lost_s=1.0)

    found = at_556(judged=judged)
    best = found.orders()[-1]
    assert {len(each.dropped) for each in found.displaced} == {1}
    assert len(best.dropped) == 2
    assert best.seconds == pytest.approx(19, rel=1e-3)
    # Each order lacks as many bytes as it keeps maps.
    tried = list[frozenset[int]]()

    def lacking(order: Order, _effort: Effort) -> Verdict:
        tried.append(order.dropped)
        return Verdict(lacking_bytes=9 - len(order.dropped))

    found = at_556(judged=lacking)
    assert found.orders() == []
    assert max(map(len, tried)) >= 2
    assert [each.dropped for each in found.displaced] == tried


def test_what_loses_much_in_whole_is_dropped_in_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order that keeps the map of conv1 loses 0.5 s: the next relaxation is of the order that drops it.

    Those for conv3 and, evenly spread, for conv2 are tried before, but no segments; then that for conv1 and conv2, in
    18 s, and as there is no other loss no more. Where what loses much cannot be dropped, the next relaxation knows what
    is restored, as without a loss.
    """
    conv1, conv2, conv3 = RECOMPUTATION.droppable[:3]

    def judged(order: Order, _effort: Effort) -> Verdict:
        return Verdict() if conv1 in order.dropped else Verdict(lost_s=0.5, bulky=frozenset([conv1]))

    known = relaxed_to(monkeypatch, {conv3: 1.0}, {conv2: 1.0}, {conv3: 1.0})
    found, looked = search(556)
    best = replace(found, judged=judged).orders()[-1]
    assert recomputed(looked)[:5] == [[], ["conv3"], ["conv2"], ["conv1"], ["conv1", "conv2"]]
    assert (best.dropped, best.lost_s) == (frozenset([conv1]), 0.0)
    assert known == [Restored()] * 2

    known = relaxed_to(monkeypatch, *[{conv3: 1.0}] * 2)
    at_556(judged=lambda *_: Verdict(lost_s=0.5, bulky=frozenset([-1]))).orders()
    assert [not each.until for each in known][:2] == [True, False]


def test_segments_are_tried_where_relaxations_have_no_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two segments write two maps of 10 B each: that of conv1 is dropped, that of conv2 kept as an output.

    Of three to twelve segments each writes at most one, and nothing is dropped. Of more the last has the loss alone and
    the one before it ends after fc, whose output is not needed: the map of conv4 is dropped.
    """
    relaxed_to(monkeypatch)
    found, looked = search(556)

    found.orders()

    assert recomputed(looked)[:3] == [[], ["conv1"], ["conv4"]]


def test_what_is_restored_too_early_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 530 B dW of conv4 has no room for the map of conv2, which is restored with that of conv3 and waits."""
    relaxed_to(monkeypatch, dict.fromkeys(RECOMPUTATION.droppable[1:3], 1.0))
    found, looked = search(530)

    found.orders()

    assert recomputed(looked)[:3] == [[], ["conv2", "conv3"], ["conv3"]]


def test_effort_is_counted_in_kernels() -> None:
    """Of an order of sixteen kernels and others with recomputations: more are not begun than have been taken."""
    found, looked = search(556, effort=Effort(17.0))

    found.orders()

    assert [len(each.kernels) for each in looked] == [16]
    assert not found.effort.is_cut
