"""A plan as a live loop follows it, to predict its time and memory.

Storages are offloaded, prefetched, released and recomputed at the points of the loop's schedule. Operations request
memory in the order measured on the GPU.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from calibration.apply.expected_steps import ExpectedSteps
from calibration.apply.live_schedule import LiveSchedule
from calibration.apply.scheduling import schedule_of
from calibration.capture.tape import Tape
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role
from vdnnsim.errors import ExecutionRefused, PlanError
from vdnnsim.memory.requests import Request
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.operations import Allocate, Compute, Operation, Release, WaitEvent
from vdnnsim.plans.training_plan import Buffer, TrainingPlan

Requests = Mapping[int, Sequence[Request]]
"""Requests by number of an operation, in order; those not freed are its results."""


def as_followed(
    plan: TrainingPlan, tape: Tape, free: Container[int], costs: CostModel, requests: Requests
) -> tuple[TrainingPlan, LiveSchedule]:
    """Return a plan as a loop follows it, unchanged if it has states on the host, and the loop's schedule.

    `free` is as of `schedule_of`; the costs offer one kernel each.

    Raises:
        ExecutionRefused: no loop can follow it.
    """
    schedule = schedule_of(plan, tape, free)
    if schedule.states:
        return plan, schedule
    kernels = {where: options[0] for where, options in costs.table(plan.workload).kernels.items()}
    steps = [*ExpectedSteps(plan, schedule).steps()]
    try:
        followed = lower(
            steps, plan.workload, kernels, label=plan.policy, algorithms=plan.algorithms, handles=plan.handles
        )
    except PlanError:
        return plan, schedule
    asking = _Asking(followed, requests).plan()
    kept = replace(asking, passes=plan.passes, certificate=plan.certificate, memory_model=plan.memory_model)
    return kept, schedule


def followed_if_possible(
    plan: TrainingPlan, followed: Callable[[TrainingPlan], tuple[TrainingPlan, LiveSchedule]]
) -> TrainingPlan:
    """Return a plan as it is followed, unchanged if no loop can: a policy may try others."""
    try:
        return followed(plan)[0]
    except ExecutionRefused:
        return plan


class _Asking:
    """Orders the allocations of results and workspaces of kernels by measured requests."""

    def __init__(self, plan: TrainingPlan, requests: Requests) -> None:
        self._plan, self._asked = plan, requests
        self._buffers = list(plan.buffers)
        self._operations: list[Operation] = []

    def plan(self) -> TrainingPlan:
        gone = set[int]()
        for operation in self._plan.operations:
            requests = self._requests(operation) if isinstance(operation, Compute) else ()
            if isinstance(operation, Compute) and requests:
                gone.update(each.memory for each in operation.operands if each.role is Role.WORKSPACE)
                self._compute(operation, requests)
            elif not (isinstance(operation, Release) and operation.buffer in gone):
                self._operations.append(operation)
        return replace(self._plan, buffers=tuple(self._buffers), operations=tuple(self._operations))

    def _requests(self, kernel: Compute) -> Sequence[Request]:
        step = self._plan.workload.step
        return self._asked.get(step.numbers_of(kernel.layer, kernel.phase)[kernel.operation], ())

    def _compute(self, kernel: Compute, requests: Sequence[Request]) -> None:
        results = self._results(kernel)
        passing = {each.key for each in requests if each.nbytes is None}
        last = max(at for at, each in enumerate(requests) if each.nbytes is not None)
        held: dict[int, int] = {}
        for at, (key, nbytes, *_) in enumerate(requests):
            if nbytes is None:
                self._operations.append(Release(held.pop(key)))
            elif key in passing:
                held[key] = self._workspace(kernel, nbytes)
            elif results:
                sizes = [self._buffers[each.buffer].nbytes for each in results]
                self._operations.append(results.pop(sizes.index(nbytes) if nbytes in sizes else 0))
            if at == last:
                own = (each for each in kernel.operands if each.role is not Role.WORKSPACE)
                workspaces = (Operand(Role.WORKSPACE, each, Access.WRITE, at) for at, each in enumerate(held.values()))
                self._operations += [*results, replace(kernel, operands=(*own, *workspaces))]

    def _results(self, kernel: Compute) -> list[Allocate]:
        """Remove the allocations before a kernel; return those of results, in order."""
        taken, others = list[Allocate](), list[Operation]()
        while isinstance(before := self._operations[-1], WaitEvent | Allocate):
            if isinstance(before, WaitEvent):
                others.append(before)
            elif before.buffer in kernel.writes:
                taken.append(before)
            else:
                break
            self._operations.pop()
        self._operations += reversed(others)
        return [each for each in reversed(taken) if self._buffers[each.buffer].storage is not None]

    def _workspace(self, kernel: Compute, nbytes: int) -> int:
        name, stage = f"workspace of {self._plan.layers[kernel.layer]}", self._plan.layer_stages[kernel.layer]
        self._buffers.append(Buffer(name, BufferKind.WORKSPACE, nbytes, stage))
        self._operations.append(Allocate(len(self._buffers) - 1, kernel.layer, kernel.phase))
        return len(self._buffers) - 1
