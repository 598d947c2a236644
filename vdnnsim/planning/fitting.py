"""Fitting: makes plans of an order of kernels that fit by their bytes and at addresses."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Final, NamedTuple

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.planning.effort import MADE, TIMED, Effort, steps_of_placing
from vdnnsim.planning.fluid_bound import TOLERANCE, Optimum, optimum_of
from vdnnsim.planning.offload import WHOLE, Copies, OffloadSearch, faster
from vdnnsim.planning.problem import Option, Problem
from vdnnsim.planning.recompute_search import Order, Verdict
from vdnnsim.planning.timetable import Movement, Timetable
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.units import format_seconds

MOST_REPAIRS: Final = 64
"""Plans that are made again for requests that fail."""
LESS: Final = tuple(1 - at / 64 for step in (8, 4, 2, 1) for at in range(step, 33, 2 * step if step < 8 else step))
"""Shares of the memory for which plans are made, from coarse to fine, where plans for all of it fragment."""
MOST_JUDGED: Final = 5
"""Plans that are made when an order is judged, each for less memory."""
MOST_LATE: Final = 4
"""Shares that are tried when the effort is spent, while nothing fits."""
LEAST_COPIED: Final = tuple(2.0**at for at in range(-10, 0))
"""Parts of the bytes that are moved, of which smaller buffers stay where copies take the host or the link too long."""
REGAINED: Final = 0.2
"""Of an iteration, what whole buffers lose to parts of them before some are exchanged for others."""
NEAR: Final = 1e-3
"""Gap to a lower bound, as a fraction, that need not be reduced."""


@dataclass(frozen=True)
class Candidate:
    """A plan that fits."""

    timetable: Timetable
    plan: TrainingPlan
    replay: Callable[[TrainingPlan], float]

    @cached_property
    def seconds(self) -> float:
        """Time of a replay on the machine, with its host and other GPUs."""
        return self.replay(self.plan)


@dataclass
class Best:
    """The fastest plan so far, for a search that may be interrupted.

    Attributes:
        progress: receives a line on each improvement and its gap.
        orders: that were looked at, also where a plan of another was found first.
        look: most effort of a plan so far.
        relaxed: by buffer the part that the bound recomputes.
    """

    label: str
    progress: Callable[[str], object] | None
    bound_s: float
    found: Candidate | None = None
    orders: list[Order] = field(default_factory=list)
    look: float = 0.0
    relaxed: Mapping[int, float] = field(default_factory=dict)

    def offer(self, other: Candidate | None) -> bool:
        """Take a plan if it is faster; return whether it is."""
        if other is None or (self.found and other.seconds >= self.found.seconds):
            return False
        self.found = other
        self.report(other.timetable.seconds)
        return True

    def report(self, seconds: float) -> None:
        """Report the seconds of an iteration, the host aside."""
        if self.progress is not None:
            above = seconds / self.bound_s - 1 if self.bound_s else 0.0
            self.progress(f"{self.label}: {format_seconds(seconds)}, {100 * above:.1f} % above the bound")


class NoRoom(NamedTuple):
    """The first request of a plan that fails.

    Attributes:
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
        best: receives every plan that fits.
        lowered: makes a plan of a timetable.
        granule_bytes: in which memory can be released.
        chunk_bytes: the most that a copy moves; None for the best, `WHOLE` for whole buffers.
        near: distance of a timetable to the optimum, as a fraction, that is good enough.
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
    near: float = TOLERANCE
    _refused: dict[Hashable, NoRoom] = field(default_factory=dict, init=False)

    def first(self, effort: Effort) -> Candidate | None:
        """Offer a plan for all of the memory, with repairs."""
        return self._faster(None, self._repaired(self.order.problem, self.order.optimum, effort))

    def judged(self, effort: Effort) -> Verdict:
        """Offer the first plan, or if it fragments plans for as much less memory as it lacks."""
        problem, optimum, lacking = self.order.problem, self.order.optimum, list[int]()
        while len(lacking) < MOST_JUDGED and not (lacking and not effort.allows(self.best.look)):
            made = self.planned(problem, optimum, effort, inf)
            if made is None:
                break
            if isinstance(made, Candidate):
                self.best.offer(made)
                return Verdict(made.timetable.seconds - self.order.optimum.seconds)
            lacking.append(made.lacking_bytes)
            less = problem.capacity_bytes - self.order.problem.capacity_bytes
            problem = replace(self.order.problem, capacity_bytes=problem.capacity_bytes + less - lacking[-1])
            found = optimum_of(problem, self.copies.best, self.host_bytes, effort, inf)
            enough_s = self.best.found.timetable.seconds if self.best.found else inf
            if found is None or found.seconds >= enough_s * (1 - NEAR):
                break
            optimum = found
        return Verdict(lacking_bytes=lacking[0] if lacking else 1)

    def rounded(self, effort: Effort) -> Verdict:
        """Return what whole buffers lose to the optimum, which may cut them, beyond what exchanges regain."""
        found = self._search(self.order.problem, self.order.optimum, effort, inf).best(WHOLE)
        if found is None:
            return Verdict(lacking_bytes=1)
        lost_s = found.seconds - self.order.optimum.seconds * (1 + REGAINED)
        if lost_s <= 0:
            return Verdict()
        largest = max(found.movement.chunks, key=lambda each: each.nbytes)
        return Verdict(lost_s, bulky=frozenset([largest.wait.buffer]))

    def planned(
        self, problem: Problem, optimum: Optimum, effort: Effort, near: float | None = None
    ) -> Candidate | NoRoom | None:
        """Return the plan of a problem, or its failed request; None where no timetable fits by its bytes."""
        spent = effort.spent
        timetable = self._search(problem, optimum, effort, near).best(self.chunk_bytes)
        made = self._made(timetable, effort) if timetable else None
        self.best.look = max(self.best.look, effort.spent - spent)
        return made

    def search(self, effort: Effort) -> None:
        """Search for the fastest plan of the order that fits at addresses.

        Plans that fragment are changed in three ways: repairs for the requests that fail; plans for less memory; and
        offloads as in less memory with the algorithms of all of it. Several amounts are tried, from coarse to fine,
        unless their fluid bound exceeds the best plan.
        """
        known, order = self.best.found, self.order
        if not (effort if known else effort.with_grace).allows(self.best.look):
            return
        found = known if known and known.timetable.movement.problem is order.problem else self.first(effort)
        found = self._with_fewer_copies(found, effort)
        for number, share in enumerate((1.0, *LESS)):
            if not effort.allows(self.best.look) and (found or effort.with_grace.is_over or number > MOST_LATE):
                return
            if found and found.timetable.seconds <= self._enough_s:
                break
            problem = replace(order.problem, capacity_bytes=int(order.problem.capacity_bytes * share))
            search = self._search(problem, order.optimum, effort)
            for movement in search.movements(order.optimum.options, self.chunk_bytes or WHOLE):
                if found and not effort.allows(self.best.look):
                    return
                found = self._faster(found, self._downgraded(movement, order.optimum.options, found, effort))
            optimum = optimum_of(problem, self.copies.best, self.host_bytes, effort) if share < 1 else None
            if optimum and (found is None or optimum.seconds < found.seconds * (1 - NEAR)):
                found = self._faster(found, self._repaired(problem, optimum, effort))

    def _with_fewer_copies(self, found: Candidate | None, effort: Effort) -> Candidate | None:
        """Return a plan that leaves small buffers on the GPU, or the one found where none such is faster.

        Each copy has a latency, and takes calls of the host, which timetables do not count: plans are replayed.
        """
        order, most = self.order, len(self.order.problem.idle)
        for part in LEAST_COPIED:
            if not found or not effort.allows(self.best.look):
                break
            if found.seconds <= self._enough_s:
                break
            large = [each for each in order.problem.idle if each.nbytes >= part * order.optimum.away_bytes]
            if len(large) == most:
                continue
            problem, most = order.problem.with_idle(large), len(large)
            optimum = optimum_of(problem, self.copies.best, self.host_bytes, effort)
            if optimum is None or optimum.seconds >= found.seconds or effort.is_over:
                break
            made = self.planned(problem, optimum, effort)
            if isinstance(made, Candidate) and made.seconds < found.seconds:
                self.best.offer(made)
                found = made
        return found

    @property
    def _enough_s(self) -> float:
        """Seconds that need not be reduced."""
        return self.order.optimum.seconds * (1 + max(self.near, NEAR))

    def _search(self, problem: Problem, optimum: Optimum, effort: Effort, near: float | None = None) -> OffloadSearch:
        near = self.near if near is None else near
        return OffloadSearch(problem, optimum, self.copies, self.granule_bytes, effort, near)

    def _made(self, timetable: Timetable, effort: Effort) -> Candidate | NoRoom:
        """Return the plan of a timetable, or its failed request, which is remembered."""
        refused = self._refused.get(timetable.decisions)
        if refused:
            return refused
        effort.spend(MADE * len(timetable.options))
        candidate = Candidate(timetable, self.lowered(timetable), self.replay)
        placed = self.place(candidate.plan)
        effort.spend(steps_of_placing(placed, len(timetable.options)))
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
        self, movement: Movement, options: Sequence[Option], best: Candidate | None, effort: Effort
    ) -> Candidate | None:
        """Return a plan with smaller workspaces where these do not fit; None unless it may be the best."""
        kernels = movement.problem.kernels
        while not effort.is_over:
            effort.spend(TIMED * len(kernels))
            timetable = movement.timetable(options)
            if best and timetable.seconds >= best.timetable.seconds:
                return None
            made = self._made(timetable, effort)
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

    def _repaired(self, problem: Problem, optimum: Optimum | None, effort: Effort) -> Candidate | None:
        """Return a plan with smaller workspaces, or more memory kept free, for the requests that fail."""
        lacked: dict[tuple[int, Phase], int] = {}
        for _ in range(MOST_REPAIRS):
            made = self.planned(problem, optimum, effort) if optimum else None
            if made is None:
                break
            if isinstance(made, Candidate):
                return made
            if made.is_workspace:
                problem = problem.with_smaller_workspaces(made.where, made.requested_bytes)
            else:
                lacking = max(lacked.get(made.where, 0), made.lacking_bytes)
                lacked[made.where] = 2 * lacking
                problem = problem.with_less_room(made.where, lacking)
            in_time = effort.allows(self.best.look)
            optimum = optimum_of(problem, self.copies.best, self.host_bytes, effort) if in_time else None
        return None
