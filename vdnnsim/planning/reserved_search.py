"""Plans for memory that is reserved ahead: searched by bytes, and placed at addresses.

Whether a plan has room among addresses is a matter of a few MiB in gaps, and of what PyTorch's allocator makes of them.
So plans for less and less memory are searched until one has room, and then plans for memory between that and the least
for which one had none, by halves, for as long as that may make the step faster; first for even less where the plan is
far from the bound. Segments take more than what lies in them, of every plan about as much, so that searches are for
that much less from the first on; what it is says the plan that keeps all, which is placed before.

What is never copied leaves fewer gaps: where the first plans have no room, some that copy nothing are searched for.
PyTorch pins blocks of powers of two, so that a plan may need more of the host than it copies: then those that follow
copy at most what had room there.
For an answer there is no effort for many searches: they begin with a sixteenth of the memory left free, which most
plans leave to gaps, and with likely sets of buffers to drop.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from math import inf
from operator import attrgetter
from typing import Final, Protocol

from vdnnsim.planning.effort import Effort, steps_of_placing
from vdnnsim.planning.fitting import NEAR, Candidate
from vdnnsim.planning.planner import GOOD, Planner
from vdnnsim.planning.recompute_search import SEGMENTS, THRESHOLDS, Order
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import TrainingPlan

LEFT: Final = (1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""Parts of the memory that plans leave free, until one has room."""
ROOMY: Final = 1 / 16
"""Part of the memory that the first plan leaves free where there is no effort for many."""
FEW_SEGMENTS: Final = SEGMENTS[::-3]
"""Numbers of checkpointed segments that are tried there."""
LACKING: Final = 4
"""How much more is left than the first plan lacked: one that leaves a little more would lack as much."""
NARROW: Final = 1 / 128
"""Part of the memory by which plans with and without room differ, below which nothing between is searched for."""
MOST_ORDERS: Final = 3
"""Orders with which the next search begins."""
SHARE: Final = 0.3
"""Of the effort that is left, for a search by bytes, and at least half as much of all of it."""
MOST_LATE: Final = 3
"""Searches without effort while no plan has room."""
ALONE: Final = 0.6
"""Of the effort that is left, for plans that copy nothing."""
PATIENCE: Final = 2
"""Amounts of less memory without room, after which plans that copy nothing are searched for."""
PARTS: Final = 8
"""Of the memory above the least, one less of which each of these has."""
FAR: Final = 1.1
"""Factor to the bound below which a plan for all of the memory is fast enough."""


class ByBytes(Protocol):
    """Makes a search for a plan that takes so many bytes, on the host too, which begins with what some orders drop."""

    def __call__(
        self, nbytes: int, part: Effort, /, known: Sequence[frozenset[int]] = (), *, host_bytes: int | None = None
    ) -> Planner: ...


@dataclass
class ReservedSearch:
    """A search for the fastest plan that has room in memory that is reserved ahead.

    Attributes:
        place: places a plan at addresses.
        kept_s: returns the seconds of a plan that keeps all, less than which no plan takes.
        found, found_s: the fastest so far that has room, which may be known before; None while there is none.
        bound_s: of all plans.
    """

    by_bytes: ByBytes
    place: Callable[[TrainingPlan], Placement | DoesNotFit]
    effort: Effort
    kept_s: Callable[[], float] = lambda: 0.0
    found: TrainingPlan | None = None
    found_s: float = inf
    bound_s: float = 0.0
    # That was left in the beginning.
    _begun: float = inf
    # For which plans may have room: segments take more than what lies in them.
    _most_bytes: int = 0
    _least_bytes: int = 0
    # By the first plan.
    _lacking_bytes: int = 0
    # That copies take at most; None for the whole host.
    _host_bytes: int | None = None
    # Sets of buffers that are dropped where there is no effort for relaxations.
    _likely: Sequence[frozenset[int]] = ()
    _orders: list[Order] = field(default_factory=list)
    _refused: set[Hashable] = field(default_factory=set)

    def search(self, device_bytes: int) -> None:
        """Search in so much memory, in less until a plan has room, and then in more again."""
        self._begun = self.effort.left
        planner = self.by_bytes(device_bytes, self.effort)
        self.bound_s = planner.bound_s()
        if self.found and (self._is_within(1 + GOOD) or self._is_settled(planner)):
            return
        self._lacking_bytes = self._unfilled_bytes(planner)
        nbytes = device_bytes - self._lacking_bytes
        if self.effort.is_short:
            nbytes -= int(ROOMY * nbytes)
            self._likely = _likely(planner)
        self._most_bytes = nbytes
        # Gaps took nothing: of whole buffers one for less may be faster, where so many are badly filled.
        fits = self._search(nbytes)
        roomy, more_bytes, late = None, nbytes, MOST_LATE
        for number, less_bytes in enumerate(self._amounts(nbytes)):
            if number == PATIENCE and self.found is None and not planner.question.movable:
                self._search_without_copies()
            if self._is_over or (fits and self._is_within(FAR)):
                is_late = self.effort.is_cut and not self.effort.is_short
                if self.found is not None or is_late or not late:
                    return
                late -= 1
            before_s = self.found_s
            if self._search(less_bytes) and not fits:
                if roomy is None or self.found_s < before_s:
                    roomy = less_bytes, more_bytes
                # As above, one for even less may be faster than the first with room.
                if before_s < inf or self._is_within(FAR):
                    break
            more_bytes = less_bytes
        if roomy is not None:
            self._search_between(*roomy)

    def _is_settled(self, planner: Planner) -> bool:
        """Return whether bounds tell that a plan with buffers on the host is no faster than the known one, without any.

        The copies of states take too long, and weight gradients lower no bound to which the known plan is near.
        """
        kept = self.found and planner.question.movable and self.found.certificate
        if not kept or self.found_s > kept.bound_s * FAR:
            return False
        question = planner.question
        if question.with_states_s(planner.best.bound_s) < self.found_s * (1 - NEAR):
            return False
        return replace(planner, question=question.with_gradients_alone).bound_s() >= kept.bound_s * (1 - NEAR)

    def _unfilled_bytes(self, planner: Planner) -> int:
        """Return what segments take beyond what lies in them: what the plan that keeps all lacks beyond its bytes."""
        kept = planner.question.all_kept
        placed = self.place(planner.lowered(kept))
        self.effort.spend(steps_of_placing(placed, len(kept.options)))
        if isinstance(placed, Placement) or placed.tries != 1:
            return 0
        return max(0, placed.lacking_bytes + min(kept.free_bytes))

    def _search_without_copies(self) -> None:
        """Search in less and less memory for a plan that copies nothing, which leaves fewer gaps."""
        effort = self.effort.part(ALONE)
        for part in range(PARTS):
            nbytes = self._most_bytes - part * (self._most_bytes - self._least_bytes) // PARTS
            if effort.is_over or self._search(nbytes, copies=False):
                return

    def _search_between(self, roomy_bytes: int, nbytes: int) -> None:
        """Search in more memory than one for which a plan has room, and less than one for which none has."""
        nbytes = min(nbytes, self._most_bytes)
        while nbytes - roomy_bytes > NARROW * nbytes and not self._is_over:
            between = (nbytes + roomy_bytes) // 2
            if self._search(between):
                roomy_bytes = between
            else:
                nbytes = between

    def _amounts(self, nbytes: int) -> Iterator[int]:
        """Yield less and less memory, at most half of what is left above the least of any plan at once."""
        before = nbytes
        for part in LEFT:
            most_bytes, least_bytes = min(before, self._most_bytes), self._least_bytes
            less_bytes = max(self._most_bytes - int(part * nbytes), (most_bytes + least_bytes) // 2)
            if not 0 < least_bytes < less_bytes < before:
                return
            if part < LEFT[-1] and part * nbytes < LACKING * self._lacking_bytes:
                continue
            yield less_bytes
            before = less_bytes
        while before - (less_bytes := (min(before, self._most_bytes) + self._least_bytes) // 2) > NARROW * nbytes:
            yield less_bytes
            before = less_bytes

    @property
    def _is_over(self) -> bool:
        return self.effort.is_over or self._is_within(1 + GOOD)

    def _is_within(self, factor: float) -> bool:
        """Return whether the plan found is near the least of all, by the bound or, as on several GPUs, by a replay."""
        return self.found_s <= self.bound_s * factor or (self.found_s < inf and self.found_s <= self.kept_s() * factor)

    def _search(self, nbytes: int, *, copies: bool = True) -> bool:
        """Place the fastest plan for so many bytes; return whether it has room, or is no faster than the one found."""
        known = nsmallest(MOST_ORDERS, self._orders, key=attrgetter("seconds"))
        orders = [frozenset[int](), *(each.dropped for each in known), *self._likely]
        host_bytes = self._host_bytes if copies else 0
        planner = self.by_bytes(nbytes, self._part(), orders, host_bytes=host_bytes)
        if self.found is not None:
            planner = replace(planner, near=NEAR)
        planner.plan()
        best = planner.best.found
        if best is None:
            return False
        self._least_bytes = planner.question.least_bytes
        self._orders += planner.best.orders
        if best.seconds >= self.found_s * (1 - NEAR) or self._has_room(planner, best):
            return True
        return copies and self._host_bytes != host_bytes and not self._is_over and self._search(nbytes)

    def _part(self) -> Effort:
        if self.effort.left == inf:
            return self.effort
        share = 1.0 if self.effort.is_short and self.found is None else SHARE
        return self.effort.part(share).at_least(SHARE / 2 * self._begun)

    def _has_room(self, planner: Planner, made: Candidate) -> bool:
        """Place a plan, and return whether it has room; it is the best then."""
        timetable = made.timetable
        if timetable.decisions in self._refused:
            return False
        placed = self.place(made.plan)
        self.effort.spend(steps_of_placing(placed, len(timetable.options)))
        if isinstance(placed, Placement):
            self.found, self.found_s = planner.certified(made, complete=not self.effort.is_cut), made.seconds
            return True
        self._refused.add(timetable.decisions)
        if placed.pool is not Pool.DEVICE:
            self._host_bytes = sum(held_bytes for _, held_bytes in placed.held_bytes)
            return False
        self._lacking_bytes = self._lacking_bytes or placed.lacking_bytes
        if placed.tries == 1:
            self._most_bytes = min(self._most_bytes, timetable.movement.problem.capacity_bytes - placed.lacking_bytes)
        return False


def _likely(planner: Planner) -> list[frozenset[int]]:
    """Return what may be dropped by the relaxation of the bound, and by checkpointed segments."""
    recomputation, again = planner.question.orders.recomputation, planner.best.relaxed
    half = frozenset(each for each in recomputation.droppable if again.get(each, 0.0) >= THRESHOLDS[1])
    kept = (half.difference(recomputation.checkpoints(each)) for each in FEW_SEGMENTS)
    return [half, *kept, *(frozenset(recomputation.segmented(each)) for each in FEW_SEGMENTS)]
