"""What the planner is asked: a workload on a machine, the problems of its orders, and their bounds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from vdnnsim.cost.transfer import HostCopies
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.copies import Direction
from vdnnsim.memory.models import MODELS_WITH_EXTENTS, extent_granule_bytes
from vdnnsim.memory.process import pinned_block_bytes
from vdnnsim.memory.requests import UNLIMITED_BYTES
from vdnnsim.planning.effort import Effort
from vdnnsim.planning.explanations import floor_bytes
from vdnnsim.planning.fluid_bound import Links, Optimum, optimum_of
from vdnnsim.planning.offload import Copies, all_away
from vdnnsim.planning.optimizer_states import least_states, states_bound
from vdnnsim.planning.orders import Orders
from vdnnsim.planning.problem import Problem
from vdnnsim.planning.timetable import Movement, Timetable
from vdnnsim.plans.buffers import states_of_update
from vdnnsim.plans.certificate import BoundClass
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.schedule import Run, iteration


@dataclass(frozen=True)
class Question:
    """A workload on a machine, and what a plan may do."""

    orders: Orders
    limits: MemoryLimits
    host_copies: HostCopies
    recompute: bool

    @property
    def workload(self) -> Workload:
        return self.orders.workload

    @property
    def movable(self) -> frozenset[int]:
        """The buffers that may be on the host while no kernel uses them."""
        return self.orders.movable

    @cached_property
    def problem(self) -> Problem:
        """The kernels in order, in all of the memory, with all movable buffers on the host."""
        return self.problem_of(iteration(self.workload), self.movable)

    @cached_property
    def all_away(self) -> Timetable:
        """The timetable that moves all it can: within host memory if every kernel can run then."""
        within = all_away(self.problem, self.copies, self.host_bytes(self.movable), self._pinned_bytes)
        if self._floor_bytes(within) <= self.problem.capacity_bytes:
            return within
        return all_away(self.problem, self.copies, UNLIMITED_BYTES, self._pinned_bytes)

    @cached_property
    def all_kept(self) -> Timetable:
        """The timetable that moves nothing, as if there was memory for it."""
        problem = self.problem_of(iteration(self.workload), frozenset())
        movement = Movement(problem, 0, (), self.copies.out_s, self.copies.in_s)
        return movement.timetable([each.options[-1] for each in problem.kernels])

    @cached_property
    def least_bytes(self) -> int:
        """The least memory of any plan."""
        return max(map(floor_bytes, self.problem.kernels))

    @cached_property
    def moved_bytes(self) -> int:
        """The memory of the plan that moves all it can: what waits within forward or backward stays."""
        return self._floor_bytes(self.all_away)

    def _floor_bytes(self, timetable: Timetable) -> int:
        """Return the least memory in which every kernel can run, once what a timetable moves is away."""
        moved = [each.wait for each in timetable.movement.chunks]
        return max(map(floor_bytes, self.problem.with_idle(moved).kernels))

    def problem_of(self, runs: Sequence[Run], on_host: frozenset[int]) -> Problem:
        return self.orders.problem(runs, on_host, self.limits)

    def optimum(self, problem: Problem, on_host: Collection[int], effort: Effort) -> Optimum | None:
        return optimum_of(problem, self.copies.best, self.host_bytes(on_host), effort)

    def host_bytes(self, on_host: Collection[int]) -> int:
        # Gradients that are updated at once are never copied.
        moved = {each.buffer: each.nbytes for each in self.problem.residencies if each.prefetched or each.offloaded}
        taken_bytes, host = sum(self._pinned_bytes(moved.get(each, 0)) for each in on_host), self.limits.host
        return min(host.pinned_bytes, host.host_bytes - host.process_bytes) - taken_bytes

    def _pinned_bytes(self, nbytes: int) -> int:
        return pinned_block_bytes(nbytes) if self.limits.host.of_pytorch else nbytes

    def states_s(self, problem: Problem, seconds: float, *, may_stay: bool = False) -> float:
        """Return the seconds that buffers on the host add to the bound of all micro-batches."""
        if not problem.residencies:
            return 0.0
        whole_s, links = self.of_all_rounds(seconds), self.copies.best
        others_s, recompute = whole_s - seconds, self.recompute
        return states_bound(problem, seconds, others_s, links, recompute=recompute, may_stay=may_stay) - whole_s

    def with_states_s(self, seconds: float) -> float:
        """Return the bound of all micro-batches with states on the host, however many: the least are copied.

        Beside kernels is as much room as with all else on the host.
        """
        least = least_states(self.problem)
        moved = tuple(each for each in self.problem.residencies if each.buffer in least)
        return self.of_all_rounds(seconds) + self.states_s(replace(self.problem, residencies=moved), seconds)

    @property
    def with_gradients_alone(self) -> "Question":
        """The question of plans that keep states on the GPU."""
        movable = self.movable - states_of_update(self.workload.step)
        return replace(self, orders=replace(self.orders, movable=movable))

    def of_all_rounds(self, seconds: float) -> float:
        """Return the bound of an iteration from that of one micro-batch with the update."""
        update_s = sum(each.options[0].seconds for each in self.problem.kernels if each.run.phase is Phase.UPDATE)
        return self.workload.rounds * seconds - (self.workload.rounds - 1) * update_s

    @cached_property
    def copies(self) -> Copies:
        asked = self.host_copies
        best = Links(asked.best_bytes_per_s(Direction.D2H), asked.best_bytes_per_s(Direction.H2D))
        # Many buffers have the same size, and beside those of other GPUs a copy's path takes some time to look up.
        out_s, in_s = (cache(partial(asked.seconds, way)) for way in (Direction.D2H, Direction.H2D))
        return Copies(out_s, in_s, best)

    @property
    def has_addresses(self) -> bool:
        """Whether plans may fragment."""
        return self.limits.model not in MODELS_WITH_EXTENTS

    @property
    def granule_bytes(self) -> int:
        limits = self.limits
        return limits.granule_bytes if self.has_addresses else extent_granule_bytes(limits.model, limits.granule_bytes)

    @property
    def bound_class(self) -> BoundClass:
        return next(e for e in BoundClass if (e.moves_states, e.recomputes) == (bool(self.movable), self.recompute))
