"""The planner: from a question to the fastest schedule that fits, with its certificate."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final, NamedTuple

from vdnnsim.planning.deadline import Deadline
from vdnnsim.planning.explanations import explained, floor_bytes
from vdnnsim.planning.fitting import NEAR, Best, Fitting
from vdnnsim.planning.offload import WHOLE
from vdnnsim.planning.optimizer_states import amounts
from vdnnsim.planning.question import Question
from vdnnsim.planning.recomputation import Recomputation
from vdnnsim.planning.recomputation_bound import recomputation_bound
from vdnnsim.planning.recompute_search import DropSearch, Order
from vdnnsim.planning.timetable import Timetable
from vdnnsim.planning.timetable_schedule import kernels_of, steps_of
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.certificate import Certificate
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.training_plan import TrainingPlan

SHORT: Final = 0.01
"""Cost of the memory limit, as a fraction, above which the certificate says what fills the memory."""
SHARE: Final = 0.4
"""Of the time left, for a plan without recomputation, and then for the recomputation bound."""
LOOK: Final = 4
"""Time of a relaxation, a try or a plan of an order, at least, as a multiple of that of a fluid optimum."""
FAR: Final = 1.05
"""Factor to the kernels' time above which no plan is made without recomputation before others."""
PLANNED: Final = 2.5
"""Weight of a kernel in the effort of a search whose orders are planned at once."""
AMPLE: Final = 1.25
"""Memory over what some kernel needs in any plan, as a factor, above which segments leave room for some plan."""
RESERVE: Final = 0.5
"""Of the time limit, at most, for the plan of the best order."""


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
    """

    question: Question
    place: Callable[[TrainingPlan], Placement | DoesNotFit]
    replay: Callable[[TrainingPlan], float]
    chunk_bytes: int | None
    deadline: Deadline
    label: str
    progress: Callable[[str], object] | None

    def plan(self) -> TrainingPlan:
        """Return the fastest plan found, also if the search is interrupted; where nothing fits, the smallest."""
        complete = False
        best = Best(self.label, self.progress, self.question.problem.fastest_s)
        with suppress(KeyboardInterrupt):
            complete = self._search_all(best, self.deadline)
        timetable = found.timetable if (found := best.found) else self.question.all_away
        is_short = found is None or timetable.seconds > self.question.problem.fastest_s * (1 + SHORT)
        certificate = self._certificate(timetable, best.bound_s, is_short=is_short, complete=complete)
        return replace(found.plan if found else self._lowered(timetable), certificate=certificate)

    def refused(self, place: Callable[[TrainingPlan], Placement | DoesNotFit]) -> TrainingPlan | None:
        """Return the plan that moves all it can if no plan has room where `place` puts it, in reserved memory.

        Segments of weights and states are larger than what lies in them, and take as much of any plan.
        """
        least_bytes = self.question.least_bytes
        if self.question.limits.device_bytes > AMPLE * least_bytes:
            return None
        plan = self._lowered(self.question.all_away)
        placed = place(plan)
        # What waits within backward may be away in another plan.
        if isinstance(placed, Placement) or placed.short_bytes <= self.question.moved_bytes - least_bytes:
            return None
        return replace(plan, certificate=self._certificate(self.question.all_away, inf, is_short=True, complete=True))

    def _search_all(self, best: Best, deadline: Deadline) -> bool:
        """Find the best plan; return whether the search completed."""
        problem, limit_s = self.question.problem, deadline.remaining_s
        if self.question.least_bytes > problem.capacity_bytes:
            best.bound_s = inf
            return True
        ways = self._ways(deadline)
        look_s = LOOK * deadline.spent_since(limit_s) / len(ways)
        begin = self._as_it_is(ways, best, deadline.part(SHARE))
        # With addresses, plans of other policies may fit without a search.
        if (best.found or self.question.has_addresses) and not deadline.allows(best.plan_s):
            return False
        if self.question.recompute and begin.seconds > self.question.of_all_rounds(best.bound_s) * (1 + NEAR):
            # The best set without recomputation, and the smallest set with which every kernel can run.
            least = next((way for way in reversed(ways) if way.room_bytes >= 0), begin)
            ways = list({way.on_host: way for way in (least, begin)}.values())
            return self._recomputing(ways, best, deadline, limit_s, look_s)
        if not self.question.recompute and (optimum := self.question.optimum(problem, (), deadline)):
            best.bound_s = optimum.seconds
        return begin.order is None or self._fitting(begin.order, best).search(deadline)

    def kept_s(self, deadline: Deadline) -> float:
        """Return a lower bound of schedules that recompute nothing, infinite where none is known to fit."""
        return min(way.seconds for way in self._ways(deadline))

    def _ways(self, deadline: Deadline) -> list[_Way]:
        """Return the sets that may be on the host, all that can be first, as far as time allows."""
        ways: list[_Way] = []
        for on_host in reversed(amounts(self.question.problem)):
            problem = (
                self.question.problem
                if on_host == self.question.movable
                else self.question.problem_of(iteration(self.question.workload), on_host)
            )
            around = problem.around(problem.fullest)
            optimum = self.question.optimum(around, on_host, deadline)
            order = (
                Order(frozenset(), around, optimum, self.question.states_s(problem, optimum.seconds))
                if optimum
                else None
            )
            seconds = self.question.of_all_rounds(order.optimum.seconds) + order.states_s if order else inf
            room_bytes = problem.capacity_bytes - max(map(floor_bytes, problem.kernels))
            ways.append(_Way(on_host, order, seconds, room_bytes))
            if deadline.is_over:
                break
        return ways

    def _as_it_is(self, ways: Sequence[_Way], best: Best, deadline: Deadline) -> _Way:
        """Find a fast plan without recomputation; return its way, with infinite seconds if it fragments."""
        chosen = ways[0]
        # Of equal bounds the smallest set first.
        for way in sorted(ways, key=lambda each: (each.seconds, len(each.on_host))):
            is_over = (deadline if best.found else deadline.with_grace).is_over
            if way.order is None or is_over or (best.found and way.seconds >= best.found.seconds * (1 - NEAR)):
                break
            if (
                self.question.recompute
                and not self.question.has_addresses
                and way.seconds > self.question.of_all_rounds(best.bound_s) * FAR
            ):
                # Orders with recomputation are looked at first.
                return way
            fitting, before = self._fitting(way.order, best), best.found
            looked_at = fitting.judged if self.question.recompute and self.question.has_addresses else fitting.first
            looked_at(deadline)
            chosen = chosen if best.found is before else way
        is_placed = best.found and best.found.timetable.seconds <= best.bound_s * (1 + NEAR)
        return chosen._replace(seconds=inf) if self.question.has_addresses and not is_placed else chosen

    def _recomputing(self, ways: list[_Way], best: Best, deadline: Deadline, limit_s: float, look_s: float) -> bool:
        """Find faster plans with recomputation; return whether the search completed."""
        took_s = limit_s - deadline.remaining_s if best.found else look_s
        if (until := deadline.part(SHARE)).allows(look_s):
            bound = recomputation_bound(
                self.question.problem, self.question.copies.best, self.question.host_bytes(()), until
            )
            best.bound_s = max(best.bound_s, bound.seconds)
        searches = [self._search(way, best, deadline, look_s) for way in ways]
        # With addresses, orders are planned during the search.
        fitting_s = 0.0 if self.question.has_addresses and best.found else min(took_s, RESERVE * limit_s)
        for number, (way, search) in enumerate(zip(ways, searches, strict=True)):
            until = deadline.part(1 / (len(searches) - number))
            search.goal_s, search.deadline = best.bound_s, until.earlier(fitting_s)
            orders = [*(search.orders() or search.displaced), *([way.order] if way.order else [])]
            # The lowest bound first; without time and without a plan only that one.
            for at, order in enumerate(sorted(orders, key=lambda each: each.optimum.seconds + each.states_s)):
                seconds = self.question.of_all_rounds(order.optimum.seconds) + order.states_s
                limit, needed_s = (until, fitting_s) if at else (until.with_grace, best.plan_s)
                if limit.allows(needed_s if best.found else 0.0) and (
                    best.found is None or seconds < best.found.seconds * (1 - NEAR)
                ):
                    self._fitting(order, best).search(until)
        return search.is_complete

    def _fitting(self, order: Order, best: Best) -> Fitting:
        return Fitting(
            order,
            best,
            self._lowered,
            self.place,
            self.replay,
            self.question.copies,
            self.question.host_bytes(order.problem.on_host),
            self.question.granule_bytes,
            self._chunk_bytes,
        )

    def _search(self, way: _Way, best: Best, deadline: Deadline, look_s: float) -> DropSearch:
        search = DropSearch(
            Recomputation(iteration(self.question.workload), self.question.workload, self.question.costs),
            partial(self.question.problem_of, on_host=way.on_host),
            self.question.copies.best,
            self.question.host_bytes(way.on_host),
            deadline,
            best.bound_s,
            best.report,
            way.order,
            self.question.states_s,
            look_s,
        )
        if not self.question.has_addresses:
            return search
        # Plans are reported when they are offered.
        return replace(
            search,
            begin=None,
            found=None,
            look_s=max(look_s, best.plan_s),
            weight=PLANNED,
            judged=lambda order, until: self._fitting(order, best).judged(until),
        )

    @property
    def _chunk_bytes(self) -> int | None:
        """The size requested; whole buffers if the memory model has no extents."""
        return WHOLE if self.chunk_bytes is None and self.question.has_addresses else self.chunk_bytes

    def _lowered(self, timetable: Timetable) -> TrainingPlan:
        problem = timetable.movement.problem
        kernels = kernels_of([each.run for each in problem.kernels], timetable.options)
        buffers = IterationBuffers(self.question.workload, problem.on_host)
        return lower(
            steps_of(timetable),
            self.question.workload,
            kernels,
            label=self.label,
            algorithms="one by one",
            buffers=buffers,
        )

    def _certificate(self, timetable: Timetable, bound_s: float, *, is_short: bool, complete: bool) -> Certificate:
        whole_s = states_s = 0.0
        if bound_s < inf:
            whole_s, states_s = (
                self.question.of_all_rounds(bound_s),
                self.question.states_s(self.question.problem, bound_s, may_stay=True),
            )
        is_short |= states_s > SHORT * whole_s
        certificate = Certificate(whole_s + states_s, self.question.bound_class, complete=complete)
        return explained(certificate, self.question.problem, timetable, states_s, is_short=is_short)
