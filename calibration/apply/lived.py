"""A plan as a live loop follows it, of which time and memory can be promised.

What leaves, comes back, is given up or computed again does so at the moments that the loop tells of, and as a whole
where the plan has it in parts. Each operation asks for memory in its own order, where a GPU was asked for that order.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from calibration.apply.agenda import Action, Again, Agenda, Come, Forget, Give, Leave, agenda_of
from calibration.capture.tape import Tape
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role
from vdnnsim.errors import ExecutionRefused, PlanError
from vdnnsim.memory.requests import Request
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.operations import Allocate, Compute, Operation, Release, WaitEvent
from vdnnsim.plans.schedule import Fetch, Offload, Run, Step, Wait
from vdnnsim.plans.schedule import Release as GiveUp
from vdnnsim.plans.training_plan import Buffer, TrainingPlan

Asked = Mapping[int, Sequence[Request]]
"""By identity of a captured operation what it asks for, in order; what it does not give back are its results."""


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
    steps = [*_Steps(plan, agenda).steps()]
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


class _Steps:
    def __init__(self, plan: TrainingPlan, agenda: Agenda) -> None:
        self._agenda, self._step = agenda, plan.workload.step
        numbers = {id(each): number for number, each in enumerate(self._step.operations)}
        layers = plan.workload.graph.layers
        self._runs: dict[int, Run] = {}
        self._again: dict[int, Run] = {}
        for each in plan.operations:
            if isinstance(each, Compute):
                number = numbers[id(self._step.operations_of(each.layer, each.phase)[each.operation])]
                run = Run(layers[each.layer], each.phase, each.repeat, each.part, each.barrier_s, each.operation)
                (self._again if each.repeat else self._runs)[number] = run
        takes = {agenda.tape.saves[each.save].storage: each.issued for each in reversed(agenda.tape.takes)}
        # By storage the last operation that touches or holds it, and the last before backward takes it.
        self._last, self._let_go = dict[int, int](), dict[int, int]()
        for number, operation in enumerate(self._step.operations):
            touched = (self._step.tensors[operand.memory].storage for operand in operation.operands)
            for storage in (*operation.holds, *touched):
                self._last[storage] = number
                if number < takes.get(storage, -1):
                    self._let_go[storage] = number
        self._behind = defaultdict[int, list[int]](list)
        self._saved = {each.storage for each in agenda.tape.saves}
        # Storages that are on the GPU, of those that are given up or saved; those that are not; and what of them left.
        self._there, self._gone = set[int](), set[int]()
        self._left = defaultdict[int, list[range]](list)
        self._makers = defaultdict[int, list[int]](list)
        for number in sorted(self._again):
            for storage in self._written(number):
                self._makers[storage].append(number)

    def steps(self) -> Iterator[Step]:
        moments = zip(self._agenda.issued, self._agenda.actions, strict=True)
        issued, due = next(moments, (None, ()))
        last = next(iter(self._runs.values()))
        for number, run in self._runs.items():
            while issued is not None and issued <= number:
                for action in due:
                    yield from self._done(action, last, number)
                issued, due = next(moments, (None, ()))
            yield from self._brought(number, last, self._step.operations[number].holds)
            self._there |= self._written(number) & self._saved
            last = run
            yield run
            for storage in dict.fromkeys(self._behind[number]):
                yield self._give(storage)

    def _done(self, action: Action, last: Run, following: int) -> Iterator[Step]:
        match action:
            case Leave(storage=storage, extent=extent):
                self._left[storage].append(extent)
                yield Offload((storage,), last.layer, last.phase, extent=self._part(storage, extent))
            case Come(storage=storage, extent=extent) if extent in self._left[storage]:
                yield self._come(storage, extent, last, on_demand=False)
            case Give(storage=storage) if storage in self._there and self._is_safe(storage):
                # What the operation to come still reads goes when that has run.
                if (let_go := self._let_go.get(storage, -1)) >= following:
                    self._behind[let_go].append(storage)
                else:
                    yield self._give(storage)
            case Forget(storage=storage) if storage in self._there and self._last.get(storage, -1) < following:
                self._there.remove(storage)
                yield GiveUp((storage,))
            case Again(operation=number) if not self._written(number) <= self._there:
                yield from self._rerun(number, last)
            case _:
                pass

    def _is_safe(self, storage: int) -> bool:
        """Whether all of it is on the host, or can be computed again."""
        nbytes = self._step.storages[storage].nbytes
        return storage not in self._agenda.moved or sum(map(len, self._left[storage])) >= nbytes

    def _give(self, storage: int) -> Step:
        self._there.remove(storage)
        self._gone.add(storage)
        return Wait((storage,)) if storage in self._agenda.moved else GiveUp((storage,))

    def _brought(self, number: int, last: Run, holds: Iterable[int] = ()) -> Iterator[Step]:
        """Bring back what an operation reads, or backward takes, and is still away: nobody has begun to."""
        operands = self._step.operations[number].operands
        reads = (self._step.tensors[each.memory].storage for each in operands if each.access.reads)
        for storage in dict.fromkeys((*reads, *holds)):
            if storage not in self._gone:
                continue
            if storage in self._agenda.moved:
                for extent in tuple(self._left[storage]):
                    yield self._come(storage, extent, last, on_demand=True)
            else:
                self._gone.remove(storage)
                for maker in self._makers[storage]:
                    yield from self._rerun(maker, last)

    def _come(self, storage: int, extent: range, last: Run, *, on_demand: bool) -> Step:
        self._left[storage].remove(extent)
        self._back({storage})
        part = self._part(storage, extent)
        return Fetch((storage,), last.layer, Phase.BACKWARD, on_demand=on_demand, extent=part)

    def _rerun(self, number: int, last: Run) -> Iterator[Step]:
        yield from self._brought(number, last)
        self._back(self._written(number))
        yield self._again[number]

    def _back(self, storages: set[int]) -> None:
        self._there |= storages
        self._gone -= storages

    def _part(self, storage: int, extent: range) -> range | None:
        return None if len(extent) == self._step.storages[storage].nbytes else extent

    def _written(self, number: int) -> set[int]:
        operands = self._step.operations[number].operands
        return {self._step.tensors[each.memory].storage for each in operands if each.access.writes}


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
        return self._asked.get(id(step.operations_of(kernel.layer, kernel.phase)[kernel.operation].captured), ())

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
