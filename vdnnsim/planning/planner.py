"""The planner: from a question to the fastest schedule that fits, with its certificate."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Final, NamedTuple

from vdnnsim.planning.effort import Effort
from vdnnsim.planning.explanations import explained, floor_bytes
from vdnnsim.planning.fitting import NEAR, Best, Candidate, Fitting
from vdnnsim.planning.fluid_bound import TOLERANCE
from vdnnsim.planning.offload import WHOLE
from vdnnsim.planning.optimizer_states import amounts
from vdnnsim.planning.question import Question
from vdnnsim.planning.recomputation_bound import recomputation_bound
from vdnnsim.planning.recompute_search import DropSearch, Order
from vdnnsim.planning.timetable import Timetable
from vdnnsim.planning.timetable_schedule import kernels_of, steps_of
from vdnnsim.plans.certificate import Certificate
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.training_plan import TrainingPlan

SHORT: Final = 0.01
"""Cost of the memory limit, as a fraction, above which the certificate says what fills the memory."""
SHARE: Final = 0.4
"""Of the effort left, for a plan without recomputation, and then for the recomputation bound."""
LOOK: Final = 4
"""Effort of a relaxation, a try or a plan of an order, at least, as a multiple of that of a fluid optimum."""
FAR: Final = 1.05
"""Factor to the kernels' time above which no plan is made without recomputation before others."""
AMPLE: Final = 1.25
"""Memory over what some kernel needs in any plan, as a factor, above which segments leave room for some plan."""
GOOD: Final = 0.01
"""Distance to its optimum of a plan that is good enough, where several are made."""
RESERVE: Final = 0.5
"""Of the effort, at most, for the plan of the best order."""
LAST: Final = 0.15
"""Of the effort, at least, for the plan of the best order."""


class _Way(NamedTuple):
    """A set of states and weight gradients on the host.

    Attributes:
        order: without recomputation; None where it cannot run.
        seconds: lower bound of an iteration; infinite where it cannot run.
        room_bytes: least memory free beside any kernel; below 0 where one cannot run in any order.
    """

    on_host: frozenset[int]
    order: Order | None
    seconds: float
    room_bytes: int


@dataclass(frozen=True)
class Planner:
    """A question, ready to be answered.

    Attributes:
        replay: returns the seconds of an iteration.
        chunk_bytes: the most that a copy moves; None for the best, `WHOLE` for whole buffers.
        known: sets of buffers that are dropped and recomputed, of which orders are tried first.
        near: distance of a plan to the optimum of its order, as a fraction, that is good enough.
    """

    question: Question
    place: Callable[[TrainingPlan], Placement | DoesNotFit]
    replay: Callable[[TrainingPlan], float]
    chunk_bytes: int | None
    effort: Effort
    label: str
    progress: Callable[[str], object] | None
    known: Sequence[frozenset[int]] = ()
    near: float = TOLERANCE

    @cached_property
    def best(self) -> Best:
        """What was found."""
        return Best(self.label, self.progress, self.question.problem.fastest_s)

    def plan(self) -> TrainingPlan:
        """Return the fastest plan found, also if the search is interrupted; where nothing fits, the smallest."""
        is_interrupted = True
        with suppress(KeyboardInterrupt):
            self._search_all()
            is_interrupted = False
        return self.certified(self.best.found, complete=not (is_interrupted or self.effort.is_cut))

    def certified(self, found: Candidate | None, *, complete: bool) -> TrainingPlan:
        """Return a plan with its certificate; without one the smallest."""
        timetable = found.timetable if found else self.question.all_away
        is_short = found is None or timetable.seconds > self.question.problem.fastest_s * (1 + SHORT)
        certificate = self._certificate(timetable, self.best.bound_s, is_short=is_short, complete=complete)
        return replace(found.plan if found else self.lowered(timetable), certificate=certificate)

    def refused(self, place: Callable[[TrainingPlan], Placement | DoesNotFit]) -> TrainingPlan | None:
        """Return the plan that moves all it can if no plan has room where `place` puts it, in reserved memory.

        Segments of weights and states are larger than what lies in them, and take as much of any plan.
        """
        least_bytes = self.question.least_bytes
        if self.question.limits.device_bytes > AMPLE * least_bytes:
            return None
        plan = self.lowered(self.question.all_away)
        placed = place(plan)
        # What waits within backward may be away in another plan.
        if isinstance(placed, Placement) or placed.short_bytes <= self.question.moved_bytes - least_bytes:
            return None
        return replace(plan, certificate=self._certificate(self.question.all_away, inf, is_short=True, complete=True))

    def bound_s(self) -> float:
        """Return the lower bound of all plans."""
        if self.question.least_bytes > self.question.problem.capacity_bytes:
            return inf
        self._find_bound(self.effort)
        return sum(self._bounds_s(self.best.bound_s))

    def _find_bound(self, effort: Effort) -> None:
        question, best = self.question, self.best
        if question.recompute:
            found = recomputation_bound(question.problem, question.copies.best, question.host_bytes(()), effort)
            best.bound_s, best.relaxed = max(best.bound_s, found.seconds), found.again
        elif optimum := question.optimum(question.problem, (), effort):
            best.bound_s = optimum.seconds

    def _search_all(self) -> None:
        """Find the best plan."""
        problem, best, effort = self.question.problem, self.best, self.effort
        begun, whole = effort.spent, effort.left
        if self.question.least_bytes > problem.capacity_bytes:
            best.bound_s = inf
            return
        ways = self._ways(effort)
        look = LOOK * (effort.spent - begun) / len(ways)
        begin = self._as_it_is(ways, effort.part(SHARE))
        # With addresses, plans of other policies may fit without a search.
        if (best.found or self.question.has_addresses) and not effort.allows(best.look):
            return
        if self.question.recompute and begin.seconds > self.question.of_all_rounds(best.bound_s) * (1 + NEAR):
            # The best set without recomputation, and the smallest set with which every kernel can run.
            least = next((way for way in reversed(ways) if way.room_bytes >= 0), begin)
            ways = list({way.on_host: way for way in (least, begin)}.values())
            took = effort.spent - begun if best.found else look
            self._recomputing(ways, effort, max(LAST * whole, min(took, RESERVE * whole)), look)
            return
        if not self.question.recompute:
            self._find_bound(effort)
        if begin.order:
            self._fitting(begin.order).search(effort)

    def kept_s(self) -> float:
        """Return a lower bound of schedules that recompute nothing, infinite where none is known to fit."""
        return min(way.seconds for way in self._ways(self.effort))

    def _ways(self, effort: Effort) -> list[_Way]:
        """Return the sets that may be on the host, all that can be first, as far as the effort allows."""
        ways: list[_Way] = []
        for on_host in reversed(amounts(self.question.problem)):
            problem = (
                self.question.problem
                if on_host == self.question.movable
                else self.question.problem_of(iteration(self.question.workload), on_host)
            )
            around = problem.around(problem.fullest)
            optimum = self.question.optimum(around, on_host, effort)
            order = (
                Order(frozenset(), around, optimum, self.question.states_s(problem, optimum.seconds))
                if optimum
                else None
            )
            seconds = self.question.of_all_rounds(order.optimum.seconds) + order.states_s if order else inf
            room_bytes = problem.capacity_bytes - max(map(floor_bytes, problem.kernels))
            ways.append(_Way(on_host, order, seconds, room_bytes))
            if effort.is_over:
                break
        return ways

    def _as_it_is(self, ways: Sequence[_Way], effort: Effort) -> _Way:
        """Find a fast plan without recomputation; return its way, with infinite seconds if it fragments."""
        chosen, best = ways[0], self.best
        # Of equal bounds the smallest set first.
        for way in sorted(ways, key=lambda each: (each.seconds, len(each.on_host))):
            is_over = (effort if best.found else effort.with_grace).is_over
            if way.order is None or is_over or (best.found and way.seconds >= best.found.seconds * (1 - NEAR)):
                break
            if (
                self.question.recompute
                and not self.question.has_addresses
                and way.seconds > self.question.of_all_rounds(best.bound_s) * FAR
            ):
                # Orders with recomputation are looked at first.
                return way
            fitting, before = self._fitting(way.order), best.found
            looked_at = fitting.judged if self.question.recompute and self.question.has_addresses else fitting.first
            looked_at(effort)
            best.orders.append(way.order)
            chosen = chosen if best.found is before else way
        is_placed = best.found and best.found.timetable.seconds <= best.bound_s * (1 + NEAR)
        return chosen._replace(seconds=inf) if self.question.has_addresses and not is_placed else chosen

    def _recomputing(self, ways: list[_Way], effort: Effort, fitting: float, look: float) -> None:
        """Find faster plans with recomputation; those of the best orders may take as much effort as `fitting`."""
        best = self.best
        # The bound of a search that begins with what others found is theirs.
        if not self.known and effort.part(SHARE).allows(look):
            self._find_bound(effort)
        searches = [self._search(way, effort, look) for way in ways]
        # With addresses, orders are planned during the search.
        if self.question.has_addresses and best.found:
            fitting = 0.0
        for number, (way, search) in enumerate(zip(ways, searches, strict=True)):
            until = effort.part(1 / (len(searches) - number))
            search.goal_s, search.effort = best.bound_s, until.but(fitting)
            orders = [*(search.orders() or search.displaced), *([way.order] if way.order else [])]
            best.orders += orders
            # The fastest first; without effort and without a plan only that one.
            for at, order in enumerate(sorted(orders, key=lambda each: each.seconds)):
                seconds = self.question.of_all_rounds(order.optimum.seconds) + order.states_s
                limit, needed = (until, fitting) if at else (until.with_grace, best.look)
                if limit.allows(needed if best.found else 0.0) and (
                    best.found is None or seconds < best.found.seconds * (1 - NEAR)
                ):
                    self._fitting(order).search(until)

    def _fitting(self, order: Order) -> Fitting:
        return Fitting(
            order,
            self.best,
            self.lowered,
            self.place,
            self.replay,
            self.question.copies,
            self.question.host_bytes(order.problem.on_host),
            self.question.granule_bytes,
            self._chunk_bytes,
            self.near,
        )

    def _search(self, way: _Way, effort: Effort, look: float) -> DropSearch:
        best = self.best
        search = DropSearch(
            self.question.orders.recomputation,
            partial(self.question.problem_of, on_host=way.on_host),
            self.question.copies.best,
            self.question.host_bytes(way.on_host),
            effort,
            best.bound_s,
            best.report,
            way.order,
            self.question.states_s,
            look,
            known=self.known,
        )
        if not self.question.has_addresses:
            if self._chunk_bytes == WHOLE:
                search = replace(search, judged=lambda order, until: self._fitting(order).rounded(until))
            return search
        # Plans are reported when they are offered.
        return replace(
            search,
            begin=None,
            found=None,
            look=max(look, best.look),
            judged=lambda order, until: self._fitting(order).judged(until),
        )

    @property
    def _chunk_bytes(self) -> int | None:
        """The size requested; whole buffers if the memory model has no extents."""
        return WHOLE if self.chunk_bytes is None and self.question.has_addresses else self.chunk_bytes

    def lowered(self, timetable: Timetable) -> TrainingPlan:
        """Return the plan of a timetable."""
        problem = timetable.movement.problem
        kernels = kernels_of([each.run for each in problem.kernels], timetable.options)
        return lower(
            steps_of(timetable),
            self.question.workload,
            kernels,
            label=self.label,
            algorithms="one by one",
            buffers=self.question.orders.buffers(problem.on_host),
        )

    def _certificate(self, timetable: Timetable, bound_s: float, *, is_short: bool, complete: bool) -> Certificate:
        whole_s, states_s = self._bounds_s(bound_s) if bound_s < inf else (0.0, 0.0)
        is_short |= states_s > SHORT * whole_s
        certificate = Certificate(whole_s + states_s, self.question.bound_class, complete=complete)
        return explained(certificate, self.question.problem, timetable, states_s, is_short=is_short)

    def _bounds_s(self, bound_s: float) -> tuple[float, float]:
        """Return the bound of all micro-batches, and what states on the host add to it."""
        question = self.question
        return question.of_all_rounds(bound_s), question.states_s(question.problem, bound_s, may_stay=True)
