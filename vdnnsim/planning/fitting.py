"""Fitting: from an order of kernels to a plan that fits, by its bytes in a timetable and by its addresses."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Final, NamedTuple

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.planning.deadline import PAST, Deadline
from vdnnsim.planning.fluid_bound import Optimum, optimum_of
from vdnnsim.planning.offload import WHOLE, Copies, OffloadSearch, faster
from vdnnsim.planning.problem import Kernel, Option, Problem
from vdnnsim.planning.recompute_search import Order, Verdict
from vdnnsim.planning.timetable import Movement, Timetable
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.units import format_seconds

MOST_REPAIRS: Final = 64
"""So often a plan is made again for kernels that find no room."""
LESS: Final = tuple(1 - at / 64 for step in (8, 4, 2, 1) for at in range(step, 33, 2 * step if step < 8 else step))
"""Of the memory, where addresses do not fit into all of it: plans are made for these shares, from coarse to fine."""
MOST_JUDGED: Final = 5
"""So often a plan is made when an order is looked at, each time with less memory."""
MOST_LATE: Final = 4
"""So many shares are tried after the time is up, while nothing fits."""
NEAR: Final = 1e-3
"""What is so near to what nothing is faster than need not be better."""


@dataclass(frozen=True)
class Candidate:
    """A plan that fits."""

    timetable: Timetable
    plan: TrainingPlan
    replay: Callable[[TrainingPlan], float]

    @cached_property
    def seconds(self) -> float:
        """What an iteration takes on the machine, its host and other GPUs included."""
        return self.replay(self.plan)


@dataclass
class Best:
    """The fastest plan so far, which is there whenever a search is interrupted.

    Attributes:
        label: of the policy.
        progress: receives a line on what has been found, and how far it is above the lower bound.
        bound_s: the lower bound, as far as it is known.
        plan_s: what the plan took to make that took longest.
    """

    label: str
    progress: Callable[[str], object] | None
    bound_s: float
    found: Candidate | None = None
    plan_s: float = 0.0

    def offer(self, other: Candidate | None) -> bool:
        """Take a plan if it is faster; return whether it is."""
        if other is None or (self.found and other.seconds >= self.found.seconds):
            return False
        self.found = other
        self.report(other.timetable.seconds)
        return True

    def report(self, seconds: float) -> None:
        """Report the seconds of an iteration that has been found, the host aside."""
        if self.progress is not None:
            above = seconds / self.bound_s - 1 if self.bound_s else 0.0
            self.progress(f"{self.label}: {format_seconds(seconds)}, {100 * above:.1f} % above the bound")


class NoRoom(NamedTuple):
    """The first request of a plan that finds no room.

    Attributes:
        where: the layer and the phase that ask.
        lacking_bytes: by which the largest free piece is too small; at least a byte.
    """

    where: tuple[int, Phase]
    requested_bytes: int
    lacking_bytes: int
    is_workspace: bool


@dataclass(frozen=True)
class Fitting:
    """Makes plans of an order.

    Attributes:
        best: is offered every plan that fits.
        lowered: makes a plan of a timetable.
        place: says where the buffers of a plan come to lie.
        replay: says what an iteration of a plan takes that fits.
        host_bytes: that may be away at a time.
        granule_bytes: in which memory can be given back.
        chunk_bytes: the most that a copy moves; None for what serves best, `WHOLE` for whole buffers.
    """

    order: Order
    best: Best
    lowered: Callable[[Timetable], TrainingPlan]
    place: Callable[[TrainingPlan], Placement | DoesNotFit]
    replay: Callable[[TrainingPlan], float]
    copies: Copies
    host_bytes: int
    granule_bytes: int
    chunk_bytes: int | None
    _refused: dict[Hashable, NoRoom] = field(default_factory=dict, init=False)

    def first(self, deadline: Deadline) -> Candidate | None:
        """Offer a plan in all of the memory, where kernels that find no room get it."""
        return self._faster(None, self._repaired(self.order.problem, self.order.optimum, deadline))

    def judged(self, deadline: Deadline) -> Verdict:
        """Offer a plan that is made at once; where a request finds no room, some with so much less memory in all."""
        problem, optimum, lacking = self.order.problem, self.order.optimum, list[int]()
        while len(lacking) < MOST_JUDGED and not (lacking and not deadline.allows(self.best.plan_s)):
            made = self._planned(problem, optimum, PAST, deadline)
            if made is None:
                break
            if isinstance(made, Candidate):
                self.best.offer(made)
                return Verdict(made.timetable.seconds - self.order.optimum.seconds)
            lacking.append(made.lacking_bytes)
            less = problem.capacity_bytes - self.order.problem.capacity_bytes
            problem = replace(self.order.problem, capacity_bytes=problem.capacity_bytes + less - lacking[-1])
            found = optimum_of(problem, self.copies.best, self.host_bytes, PAST)
            enough_s = self.best.found.timetable.seconds if self.best.found else inf
            if found is None or found.seconds >= enough_s * (1 - NEAR):
                break
            optimum = found
        return Verdict(lacking_bytes=lacking[0] if lacking else 1)

    def search(self, deadline: Deadline) -> bool:
        """Look for the fastest plan of the order whose addresses fit as well as its bytes; return whether to the end.

        Where they do not, there are three ways: kernels that find no room get it, all have less memory, or what waits
        leaves and comes back as if there were less, and kernels run as in all of it. How much less serves best nobody
        knows ahead, so that from coarse to fine several amounts are planned for; not those in which even the fluid is
        slower than what has been found.
        """
        known, order = self.best.found, self.order
        if not (deadline if known else deadline.with_grace).allows(self.best.plan_s):
            return False
        found = known if known and known.timetable.movement.problem is order.problem else self.first(deadline)
        for number, share in enumerate((1.0, *LESS)):
            if not deadline.allows(self.best.plan_s) and (found or deadline.with_grace.is_over or number > MOST_LATE):
                return False
            if found and found.timetable.seconds <= order.optimum.seconds * (1 + NEAR):
                break
            problem = replace(order.problem, capacity_bytes=int(order.problem.capacity_bytes * share))
            search = self._search(problem, order.optimum, deadline)
            for movement in search.movements(order.optimum.options, self.chunk_bytes or WHOLE):
                if found and not deadline.allows(self.best.plan_s):
                    return False
                found = self._faster(found, self._downgraded(movement, order.optimum.options, found, deadline))
            optimum = optimum_of(problem, self.copies.best, self.host_bytes, deadline) if share < 1 else None
            if optimum and (found is None or optimum.seconds < found.seconds * (1 - NEAR)):
                found = self._faster(found, self._repaired(problem, optimum, deadline))
        return not deadline.is_over

    def _planned(
        self, problem: Problem, optimum: Optimum, search_until: Deadline, deadline: Deadline
    ) -> Candidate | NoRoom | None:
        """Return the plan of a problem, or who finds no room in it; None where no timetable of it fits by its bytes."""
        remaining_s = deadline.remaining_s
        timetable = self._search(problem, optimum, search_until).best(self.chunk_bytes)
        made = self._made(timetable) if timetable else None
        self.best.plan_s = max(self.best.plan_s, deadline.spent_since(remaining_s))
        return made

    def _search(self, problem: Problem, optimum: Optimum, deadline: Deadline) -> OffloadSearch:
        return OffloadSearch(problem, optimum, self.copies, self.granule_bytes, deadline)

    def _made(self, timetable: Timetable) -> Candidate | NoRoom:
        """Return a plan that fits, or who finds no room in it; what was refused once is not made again."""
        refused = self._refused.get(timetable.decisions)
        if refused:
            return refused
        candidate = Candidate(timetable, self.lowered(timetable), self.replay)
        placed = self.place(candidate.plan)
        if isinstance(placed, Placement):
            return candidate
        self._refused[timetable.decisions] = no_room = NoRoom(
            where=(placed.layer, placed.phase),
            requested_bytes=placed.requested_bytes,
            lacking_bytes=max(1, placed.requested_bytes - placed.largest_free_bytes),
            is_workspace=placed.plan.buffers[placed.buffer].kind is BufferKind.WORKSPACE,
        )
        return no_room

    def _faster(self, found: Candidate | None, other: Candidate | None) -> Candidate | None:
        self.best.offer(other)
        return faster(found, other)

    def _downgraded(
        self, movement: Movement, options: Sequence[Option], best: Candidate | None, deadline: Deadline
    ) -> Candidate | None:
        """Give a smaller workspace to kernels whose workspace finds no room; None unless that may be the best."""
        kernels = movement.problem.kernels
        while not deadline.is_over:
            timetable = movement.timetable(options)
            if best and timetable.seconds >= best.timetable.seconds:
                return None
            made = self._made(timetable)
            if isinstance(made, Candidate):
                return made
            smaller = [
                next((each for each in kernel.options if each.workspace_bytes < made.requested_bytes), option)
                if (kernel.run.layer.index, kernel.run.phase) == made.where
                else option
                for kernel, option in zip(kernels, options, strict=True)
            ]
            if not made.is_workspace or smaller == list(options):
                return None
            options = smaller
        return None

    def _repaired(self, problem: Problem, optimum: Optimum | None, deadline: Deadline) -> Candidate | None:
        """Give a smaller workspace to a kernel whose workspace finds no room, and more room to one that lacks it."""
        lacked: dict[tuple[int, Phase], int] = {}
        for _ in range(MOST_REPAIRS):
            made = self._planned(problem, optimum, deadline, deadline) if optimum else None
            if made is None:
                break
            if isinstance(made, Candidate):
                return made
            if made.is_workspace:
                problem = _with_smaller_workspaces(problem, made.where, made.requested_bytes)
            else:
                lacking = max(lacked.get(made.where, 0), made.lacking_bytes)
                lacked[made.where] = 2 * lacking
                problem = _with_less_room(problem, made.where, lacking)
            in_time = deadline.allows(self.best.plan_s)
            optimum = optimum_of(problem, self.copies.best, self.host_bytes, deadline) if in_time else None
        return None


def _with_less_room(problem: Problem, where: tuple[int, Phase], nbytes: int) -> Problem:
    """Return a problem in which the kernels of a phase must find more than they hold."""
    return _changed(problem, where, lambda each: replace(each, held_bytes=each.held_bytes + nbytes))


def _with_smaller_workspaces(problem: Problem, where: tuple[int, Phase], nbytes: int) -> Problem:
    """Return a problem in which the kernels of a phase have less workspace than that, if they can do with less."""

    def smaller(kernel: Kernel) -> Kernel:
        options = tuple(each for each in kernel.options if each.workspace_bytes < nbytes)
        room = 0 if options else nbytes
        return replace(kernel, options=options or kernel.options[-1:], held_bytes=kernel.held_bytes + room)

    return _changed(problem, where, smaller)


def _changed(problem: Problem, where: tuple[int, Phase], change: Callable[[Kernel], Kernel]) -> Problem:
    kernels = (change(each) if (each.run.layer.index, each.run.phase) == where else each for each in problem.kernels)
    return replace(problem, kernels=tuple(kernels))
