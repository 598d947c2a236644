"""A plan as a live loop follows it, of which time and memory can be promised.

What leaves, comes back, is given up or computed again does so at the moments that the loop tells of, and as a whole
where the plan has it in parts. Each operation asks for memory in its own order, where a GPU was asked for that order.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from calibration.apply.expected_steps import LoopSteps
from calibration.apply.plan_actions import Agenda, agenda_of
from calibration.capture.tape import Tape
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role
from vdnnsim.errors import ExecutionRefused, PlanError
from vdnnsim.memory.requests import Request
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.operations import Allocate, Compute, Operation, Release, WaitEvent
from vdnnsim.plans.training_plan import Buffer, TrainingPlan

Asked = Mapping[int, Sequence[Request]]
"""By number of an operation what it asks for, in order; what it does not give back are its results."""


def lived(
    plan: TrainingPlan, tape: Tape, free: Container[int], costs: CostModel, asked: Asked
) -> tuple[TrainingPlan, Agenda]:
    """Return a plan as a loop follows it, as it is where it has states on the host; and what it does there.

    Args:
        plan: of any policy.
        tape: what was saved and taken.
        free: as of `agenda_of`.
        costs: of its kernels, each of which has no alternative.
        asked: what operations ask of memory while they run.

    Raises:
        ExecutionRefused: no loop can follow it.
    """
    agenda = agenda_of(plan, tape, free)
    if agenda.states:
        return plan, agenda
    table = costs.table(plan.workload)
    kernels = {where: options[0] for where, options in table.kernels.items()}
    steps = [*LoopSteps(plan, agenda).steps()]
    try:
        followed = lower(
            steps, plan.workload, kernels, label=plan.policy, algorithms=plan.algorithms, handles=plan.handles
        )
    except PlanError:
        # Of what a loop would do otherwise than this says, the plan still promises as before.
        return plan, agenda
    return replace(_Asking(followed, asked).plan(), passes=plan.passes, certificate=plan.certificate), agenda


def as_tried(plan: TrainingPlan, followed: Callable[[TrainingPlan], tuple[TrainingPlan, Agenda]]) -> TrainingPlan:
    """Return a plan as it is followed; as it is where no loop can: a policy that tries several may choose others."""
    try:
        return followed(plan)[0]
    except ExecutionRefused:
        return plan


class _Asking:
    """Lets the kernels of a plan take their results and workspaces in the order in which operations ask for them."""

    def __init__(self, plan: TrainingPlan, asked: Asked) -> None:
        self._plan, self._asked = plan, asked
        self._buffers = list(plan.buffers)
        self._operations: list[Operation] = []

    def plan(self) -> TrainingPlan:
        """Return the plan."""
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
        """Take back what was to be allocated for a kernel; return what of it are results, in their order."""
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
