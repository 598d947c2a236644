"""Plans for memory that is reserved ahead: searched by bytes, and placed at addresses.

Whether a plan has room among addresses is a matter of a few MiB in gaps. So a search offers several: its fastest, and
plans of its best order that leave more and more of the memory free, however slow, until one has room; the next search,
for as much as that one takes, finds faster ones, and so does the one after it. As segments take more than what lies in
them, of every plan about as much, further searches are for that much less, and a part that is left for gaps. All this
goes on until a plan that has room is near the bound.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import product
from math import inf
from operator import attrgetter
from typing import Final

from vdnnsim.planning.effort import Effort, steps_of_placing
from vdnnsim.planning.fitting import NEAR, Candidate
from vdnnsim.planning.planner import GOOD, Planner
from vdnnsim.planning.recompute_search import Order
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import TrainingPlan

LEFT: Final = (1 / 64, 1 / 32, 1 / 16)
"""Parts of the memory that plans leave free."""
LEFT_AT_FIRST: Final = (1 / 64, 1 / 16, 1 / 8, 1 / 4)
"""The same, until one has room."""
LACKING: Final = 16
"""How much more is left than the last plan lacked: one that leaves a little more would lack as much."""
MOST_ORDERS: Final = 3
"""Orders with which the next search begins."""
SHARE: Final = 0.3
"""Of the effort that is left, for a search by bytes."""
FAR_SHARE: Final = 0.6
"""Of what is left of more, for one after a plan that is far from the bound."""
FITTING: Final = 0.05
"""Of that, for a plan of an order."""
FAR: Final = 1.1
"""Factor to the time of the fastest plan of a search above which others are not placed."""


@dataclass
class ReservedSearch:
    """A search for the fastest plan that has room in memory that is reserved ahead.

    Attributes:
        by_bytes: makes a search for a plan that takes so many bytes, which begins with what some orders drop.
        place: places a plan at addresses.
        more: for a search in less memory, while the fastest is far from the bound.
        found: the fastest so far that has room; None while there is none.
        bound_s: of all plans.
    """

    by_bytes: Callable[[int, Effort, Sequence[frozenset[int]]], Planner]
    place: Callable[[TrainingPlan], Placement | DoesNotFit]
    effort: Effort
    more: Effort
    found: TrainingPlan | None = None
    found_s: float = inf
    bound_s: float = 0.0
    # For which plans may have room: segments take more than what lies in them.
    _most_bytes: int = 0
    # For which the fastest that has room was made.
    _roomy_bytes: int = 0
    # By the last plan for which layouts were tried.
    _lacking_bytes: int = 0
    _orders: list[Order] = field(default_factory=list)
    _refused: set[Hashable] = field(default_factory=set)

    def search(self, nbytes: int) -> None:
        """Search in so much memory, and then in less."""
        self._most_bytes = nbytes
        least_bytes, tried = self._search(nbytes), {nbytes}
        while 0 < self._roomy_bytes < min(tried) and not self._is_over:
            tried.add(self._roomy_bytes)
            self._search(self._roomy_bytes)
        if self._roomy_bytes == nbytes and self.found_s <= self.bound_s * FAR:
            # Gaps took nothing. Of whole buffers one for less may be faster, where so many are badly filled.
            return
        for part in LEFT:
            # At most half of what is left above the least memory of any plan.
            less_bytes = max(self._most_bytes - int(part * nbytes), (self._most_bytes + least_bytes) // 2)
            if self._is_over or not 0 < least_bytes < less_bytes < nbytes:
                break
            if less_bytes not in tried:
                tried.add(less_bytes)
                least_bytes = self._search(less_bytes)

    @property
    def _is_over(self) -> bool:
        return self.effort.is_over or self.found_s <= self.bound_s * (1 + GOOD)

    def _search(self, nbytes: int) -> int:
        """Place plans for so many bytes, the fastest first, until one has room.

        Return the least bytes of any plan; 0 where there is none for so many.
        """
        known = nsmallest(MOST_ORDERS, self._orders, key=attrgetter("seconds"))
        is_far = self.bound_s * FAR < self.found_s < inf
        part = self.more.part(FAR_SHARE) if is_far else self.effort.part(SHARE)
        planner = self.by_bytes(nbytes, part, [each.dropped for each in known])
        plan, best = planner.plan(), planner.best.found
        assert plan.certificate is not None, "it was searched for"
        self.bound_s = self.bound_s or plan.certificate.bound_s
        if best is None:
            return 0
        self._orders += planner.best.orders
        if self._is_slow(best) or self._has_room(planner, best):
            return planner.question.least_bytes
        for order in self._leaner(planner, nbytes):
            made = None if self.effort.is_over else planner.fitted(order, self.effort.part(FITTING))
            # While none has room, a slow one tells for how much memory to search next.
            is_far = self.found is not None and made is not None and made.seconds > best.seconds * FAR
            if made is None or is_far or self._is_slow(made):
                continue
            if self._has_room(planner, made):
                break
        return planner.question.least_bytes

    def _is_slow(self, made: Candidate) -> bool:
        return made.seconds >= self.found_s * (1 - NEAR)

    def _has_room(self, planner: Planner, made: Candidate) -> bool:
        """Place a plan, and return whether it has room; it is the best then."""
        timetable = made.timetable
        if timetable.decisions in self._refused:
            return False
        placed = self.place(made.plan)
        self.effort.spend(steps_of_placing(placed, len(timetable.options)))
        if isinstance(placed, Placement):
            self.found, self.found_s = planner.certified(made, complete=not self.effort.is_cut), made.seconds
            self._roomy_bytes = timetable.movement.problem.capacity_bytes
            return True
        self._refused.add(timetable.decisions)
        self._lacking_bytes = placed.lacking_bytes if placed.tries > 1 else 0
        if placed.tries == 1:
            self._most_bytes = min(self._most_bytes, timetable.movement.problem.capacity_bytes - placed.lacking_bytes)
        return False

    def _leaner(self, planner: Planner, nbytes: int) -> Iterator[Order]:
        """Yield the best order of a search in less and less memory."""
        parts = LEFT if self.found else LEFT_AT_FIRST
        for order, part in product(nsmallest(1, planner.best.orders, key=attrgetter("seconds")), parts):
            if part * nbytes < LACKING * self._lacking_bytes:
                continue
            problem = replace(order.problem, capacity_bytes=self._most_bytes - int(part * self._most_bytes))
            optimum = planner.question.optimum(problem, problem.on_host, self.effort)
            if optimum is not None and problem.capacity_bytes < nbytes:
                yield replace(order, problem=problem, optimum=optimum)
