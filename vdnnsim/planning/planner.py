"""The planner: from a workload and a machine to the fastest schedule that fits, with what is proven of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import monotonic
from typing import Final

from vdnnsim.cost.table import CostTable
from vdnnsim.cost.transfer import HostCopies
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.copies import Direction
from vdnnsim.memory.place import MODELS_WITH_EXTENTS, extent_granule_bytes
from vdnnsim.plan.certificate import BoundClass, Certificate
from vdnnsim.plan.lowering import lower
from vdnnsim.plan.placement import MemoryLimits, Placement, place_plan
from vdnnsim.plan.schedule import Run, iteration
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.planning.fluid import Links, Optimum, Stage, fluid_optimum, stages_of
from vdnnsim.planning.offload import WHOLE, Copies, OffloadSearch
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.planning.reasons import levers, offloaded, slower_kernels, what_stays
from vdnnsim.planning.steps import kernels_of, steps_of
from vdnnsim.planning.timetable import Movement, Timetable, in_pieces, leaving

MOST_ATTEMPTS: Final = 8
"""So often a plan that fits by its bytes and not by its addresses is made again for less memory."""


@dataclass(frozen=True)
class Planner:
    """A workload on a machine, ready to be planned.

    Attributes:
        costs: of the workload.
        chunk_bytes: the most that a copy moves; None for what serves best, `WHOLE` for whole buffers.
        time_limit_s: after which a search that could go on ends.
        label: under which plans are reported.
    """

    workload: Workload
    costs: CostTable
    limits: MemoryLimits
    copies: HostCopies
    chunk_bytes: int | None
    time_limit_s: float
    label: str

    def plans(self) -> Iterator[TrainingPlan]:
        """Yield the plans that are worth a trial, none of which is known to be slower than the others.

        Where nothing fits, the only one is that which needs least.
        """
        until = monotonic() + self.time_limit_s
        found = [plan for chunk in self._sizes() if (plan := self._fitting(chunk, until))]
        if found:
            yield from found
        else:
            yield self._plan(self._least(), self.optimum)

    def _sizes(self) -> tuple[int | None, ...]:
        if self.limits.model not in MODELS_WITH_EXTENTS:
            return (WHOLE,) if self.chunk_bytes is None else (self.chunk_bytes,)
        return (self.chunk_bytes,)

    @cached_property
    def problem(self) -> Problem:
        """The kernels in their order, with all memory that there is."""
        return self._problem(iteration(self.workload), self.limits.device_bytes)

    @cached_property
    def stages(self) -> list[Stage]:
        """What must be away for each kernel."""
        return stages_of(self.problem, self._copies.best, self._host_bytes)

    @cached_property
    def optimum(self) -> Optimum | None:
        """The fluid optimum; None where some kernel cannot run in this memory, whatever is away."""
        return fluid_optimum(self.stages, self._copies.best) if all(each.needs for each in self.stages) else None

    @property
    def _host_bytes(self) -> int:
        host = self.limits.host
        return min(host.pinned_bytes, host.host_bytes - host.process_bytes)

    @cached_property
    def _copies(self) -> Copies:
        best = Links(self.copies.best_bytes_per_s(Direction.D2H), self.copies.best_bytes_per_s(Direction.H2D))
        return Copies(partial(self.copies.seconds, Direction.D2H), partial(self.copies.seconds, Direction.H2D), best)

    def _problem(self, runs: list[Run], capacity_bytes: int) -> Problem:
        return problem_of(runs, self.workload, self.costs, capacity_bytes, self.limits.granule_bytes)

    def _fitting(self, chunk_bytes: int | None, until: float) -> TrainingPlan | None:
        """Return the fastest plan whose addresses fit as well as its bytes, for some size of chunks."""
        if self.optimum is None:
            return None
        problem, optimum = self.problem, self.optimum
        for _ in range(MOST_ATTEMPTS):
            search = OffloadSearch(problem, optimum, self._copies, self._granule_bytes, until)
            timetable = search.best(chunk_bytes)
            if timetable is None:
                return None
            plan = self._plan(timetable, self.optimum)
            placed = place_plan(plan, self.limits)
            if isinstance(placed, Placement):
                return plan
            short = max(placed.requested_bytes - placed.largest_free_bytes, problem.capacity_bytes // 100)
            problem = replace(problem, capacity_bytes=problem.capacity_bytes - short)
            stages = stages_of(problem, self._copies.best, self._host_bytes)
            if not all(each.needs for each in stages):
                return None
            optimum = fluid_optimum(stages, self._copies.best)
        return None

    @property
    def _granule_bytes(self) -> int:
        model, granule = self.limits.model, self.limits.granule_bytes
        return extent_granule_bytes(model, granule) if model in MODELS_WITH_EXTENTS else granule

    def _least(self) -> Timetable:
        """Return the timetable in which all is away that can be, and every kernel has the least workspace."""
        kernels = self.problem.kernels
        turn = max(range(len(kernels)), key=lambda each: kernels[each].waiting_bytes - kernels[each].fresh_bytes)
        moved = leaving(self.problem.waits, turn)
        chunks = in_pieces(moved, max((nbytes for _, nbytes in moved), default=1))
        nothing = replace(self.problem, capacity_bytes=0)
        movement = Movement(nothing, turn, chunks, self._copies.out_s, self._copies.in_s)
        return movement.timetable([each.options[-1] for each in kernels])

    def _of_all_rounds(self, seconds: float) -> float:
        """Return the bound of an iteration, of which the problem has one micro-batch and the update."""
        updates = (each for each in self.problem.kernels if each.run.phase is Phase.UPDATE)
        return self.workload.rounds * seconds - (self.workload.rounds - 1) * sum(
            each.options[0].seconds for each in updates
        )

    def _plan(self, timetable: Timetable, optimum: Optimum | None) -> TrainingPlan:
        runs = [each.run for each in timetable.movement.problem.kernels]
        kernels = kernels_of(runs, timetable.options)
        plan = lower(steps_of(timetable), self.workload, kernels, label=self.label, algorithms="one by one")
        certificate = Certificate(
            bound_s=self._of_all_rounds(optimum.seconds) if optimum else 0.0,
            holds_for=BoundClass.OFFLOAD,
            offloaded=offloaded(timetable, plan.buffer_names),
            slower=slower_kernels(timetable),
            levers=levers(timetable, plan.buffer_names),
            stays=what_stays(self.problem, plan.buffers),
        )
        return replace(plan, certificate=certificate)
