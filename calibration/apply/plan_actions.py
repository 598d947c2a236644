"""A plan as what is to be done at each moment that a live loop tells of: each save of forward, each take of backward.

Copies begin at the first moment at or after their place in the plan; memory is given back at the last moment before its
place, so that no more is held than was promised; what comes back begins to at the first moment after its place.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import accumulate

from calibration.capture.tape import Tape
from calibration.executor.pinned_arena import lay_copies
from vdnnsim.dnn.step import StepOperation
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plans.buffers import states_of_update
from vdnnsim.plans.operations import AllocateExtent, Compute, Offload, Prefetch, Release, ReleaseExtent
from vdnnsim.plans.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class Leave:
    """Bytes of a storage are copied to the host, to a place in pinned memory."""

    storage: int
    extent: range
    offset: int


@dataclass(frozen=True, slots=True)
class Give:
    """The memory of a storage is given back once its copies have ended; it comes back, or is computed again."""

    storage: int


@dataclass(frozen=True, slots=True)
class Come:
    """Bytes of a storage begin to come back."""

    storage: int
    extent: range


@dataclass(frozen=True, slots=True)
class Again:
    """An operation of forward runs again."""

    operation: int


@dataclass(frozen=True, slots=True)
class Forget:
    """What ran again has made it, autograd never kept it, and nothing reads it any more."""

    storage: int


Action = Leave | Give | Come | Again | Forget


@dataclass(frozen=True)
class Agenda:
    """What a plan does in a live loop.

    Attributes:
        actions: by moment, saves first, then takes.
        issued: by moment, how many operations of the program were issued before it.
        moved: storages that leave; `remade`: those that are given up and computed again.
        again: operations that may have to run again.
        pinned_bytes: of the host.
        offloaded_bytes: that leave in a step.
        states: of the optimizer, where some are on the host between steps, by name: their bytes in pinned memory,
            none of those that stay on the GPU.
    """

    tape: Tape
    actions: tuple[tuple[Action, ...], ...]
    issued: tuple[int, ...]
    moved: frozenset[int]
    remade: frozenset[int]
    again: frozenset[int]
    pinned_bytes: int
    offloaded_bytes: int
    states: Mapping[str, range]


def agenda_of(plan: TrainingPlan, tape: Tape, free: Container[int]) -> Agenda:
    """Return the agenda of a plan.

    Args:
        plan: of the workload that was captured with the tape.
        tape: what was saved and taken.
        free: storages that autograd alone holds for a while; what a plan does to others is left out.

    Raises:
        ExecutionRefused: the plan runs operations in another order than the program.
    """
    return _Reader(plan, tape, free).agenda()


class _Reader:
    def __init__(self, plan: TrainingPlan, tape: Tape, free: Container[int]) -> None:
        self._plan, self._tape, self._free = plan, tape, free
        self._layout = lay_copies(plan)
        issued = [each.issued for each in tape.saves] + [each.issued for each in tape.takes]
        # Operations that were issued before a moment never become fewer.
        self._moments = list(accumulate(issued, max))
        self._last_save = {each.storage: at for at, each in enumerate(tape.saves)}
        self._first_take: dict[int, int] = {}
        for at, take in enumerate(tape.takes):
            self._first_take.setdefault(tape.saves[take.save].storage, at + len(tape.saves))
        self._due = defaultdict[int, list[Action]](list)
        # By storage the moment at which its last bytes begin to leave; by extent that left, when, and what it does.
        self._left: dict[int, int] = {}
        self._leaving: dict[tuple[int, range], tuple[int, Leave]] = {}
        self._away = Counter[int]()
        self._again: set[int] = set()
        kernels = [each for each in plan.operations if isinstance(each, Compute)]
        again = [each for each in kernels if each.repeat]
        kept = {buffer for each in again if not self._runs_again(each) for buffer in each.writes}
        self._run_again = {buffer for each in again for buffer in each.writes} - kept
        self._remade: set[int] = set()
        # Before how many operations of the program the plan stands.
        self._place = 0

    def agenda(self) -> Agenda:
        """Read the plan."""
        returning = self._released_for_return()
        for position, operation in enumerate(self._plan.operations):
            match operation:
                case Compute() if not operation.repeat or self._runs_again(operation):
                    self._compute(operation, self._number(operation))
                case Offload(buffer=buffer, copy=0) if self._moves(buffer):
                    # One copy of a storage serves all tensors of it, however many the plan makes.
                    self._offload(operation, position)
                case Prefetch(buffer=buffer) if self._moves(buffer):
                    self._prefetch(operation)
                case ReleaseExtent(buffer=buffer, extent=extent) if self._moves(buffer):
                    self._away[buffer] += len(extent)
                    if self._away[buffer] == self._plan.buffers[buffer].nbytes:
                        self._give(self._storage(buffer))
                case AllocateExtent(buffer=buffer, extent=extent) if self._moves(buffer):
                    self._away[buffer] -= len(extent)
                case Release(buffer=buffer):
                    self._release(buffer, returns=position in returning)
                case _:
                    pass
        return self._finished()

    def _finished(self) -> Agenda:
        # To copy what stays frees nothing, as what the program itself holds until backward takes it.
        given = {each.storage for due in self._due.values() for each in due if isinstance(each, Give)}
        stays = self._left.keys() - given
        actions = tuple(
            tuple(each for each in self._due[at] if not (isinstance(each, Leave | Come) and each.storage in stays))
            for at in range(len(self._moments))
        )
        return Agenda(
            self._tape,
            actions,
            tuple(self._moments),
            frozenset(self._left.keys() & given),
            frozenset(self._remade),
            frozenset(self._again),
            self._layout.nbytes,
            sum(len(each.extent) for due in actions for each in due if isinstance(each, Leave)),
            self._states(),
        )

    def _states(self) -> dict[str, range]:
        step = self._plan.workload.step
        offsets = {self._storage(buffer): offset for buffer, offset in self._layout.given.items()}
        states = [(number, step.storages[number]) for number in sorted(states_of_update(step) if offsets else ())]
        ends = {number: offsets[number] + each.nbytes if number in offsets else 0 for number, each in states}
        return {each.name: range(offsets.get(number, 0), ends[number]) for number, each in states}

    def _number(self, kernel: Compute) -> int:
        return self._plan.workload.step.numbers_of(kernel.layer, kernel.phase)[kernel.operation]

    def _operation(self, kernel: Compute) -> StepOperation:
        return self._plan.workload.step.operations_of(kernel.layer, kernel.phase)[kernel.operation]

    def _runs_again(self, kernel: Compute) -> bool:
        """Whether a loop may recompute an operation: it sees it, as none of the loss, and the result is the same."""
        return self._number(kernel) < self._tape.of_model and self._operation(kernel).repeatable

    def _compute(self, operation: Compute, number: int) -> None:
        if operation.repeat:
            self._again.add(number)
            self._at(bisect_left(self._moments, self._place), Again(number))
        elif number < self._place:
            raise ExecutionRefused(
                f"{self._plan.policy}: runs operation {number} after operation {self._place - 1}, expected a plan in "
                "the order of the program"
            )
        else:
            self._place = number + 1

    def _offload(self, operation: Offload, position: int) -> None:
        storage, extent = self._storage(operation.buffer), self._extent(operation)
        moment = max(bisect_left(self._moments, self._place), self._last_save[storage])
        if moment < self._first_take[storage]:
            self._left[storage] = max(moment, self._left.get(storage, 0))
            leave = Leave(storage, extent, self._layout.offsets[position])
            self._leaving[storage, extent] = moment, leave
            self._at(moment, leave)

    def _prefetch(self, operation: Prefetch) -> None:
        storage, extent = self._storage(operation.buffer), self._extent(operation)
        left, leave = self._leaving.pop((storage, extent), (0, None))
        moment = min(bisect_left(self._moments, self._place), self._first_take[storage])
        if leave is not None and moment < left:
            # It was to be back before autograd has saved it for the last time: it stays, and others get its place.
            self._due[left].remove(leave)
            self._stay(storage)
        elif leave is not None:
            self._at(moment, Come(storage, extent))

    def _stay(self, storage: int) -> None:
        """Leave a storage where it is, if none of its bytes leave any more."""
        others = {moment for moment, due in self._due.items() for each in due if _leaves(each, storage)}
        self._left.pop(storage)
        if others:
            self._left[storage] = max(others)
            return
        for due in self._due.values():
            due[:] = [each for each in due if each != Give(storage)]

    def _release(self, buffer: int, *, returns: bool) -> None:
        storage = self._plan.buffers[buffer].storage
        if storage is None:
            return
        if returns and self._moves(buffer):
            if storage not in self._left and buffer in self._run_again:
                self._remade.add(storage)
            if storage in self._left or storage in self._remade:
                self._give(storage)
        elif buffer in self._run_again and storage not in self._first_take:
            self._at(bisect_left(self._moments, self._place), Forget(storage))

    def _give(self, storage: int) -> None:
        if self._place > self._moments[self._first_take[storage]]:
            # Backward has taken it; what is made anew later is made beside something else.
            return
        before = min(bisect_right(self._moments, self._place), self._first_take[storage]) - 1
        moment = max(before, self._last_save[storage], self._left.get(storage, 0))
        if moment < self._first_take[storage]:
            self._at(moment, Give(storage))

    def _at(self, moment: int, action: Action) -> None:
        self._due[min(moment, len(self._moments) - 1)].append(action)

    def _moves(self, buffer: int) -> bool:
        return self._plan.buffers[buffer].storage in self._free

    def _storage(self, buffer: int) -> int:
        storage = self._plan.buffers[buffer].storage
        assert storage is not None, "what is moved is of the step"
        return storage

    def _extent(self, copy: Offload | Prefetch) -> range:
        return copy.extent or range(self._plan.buffers[copy.buffer].nbytes)

    def _released_for_return(self) -> frozenset[int]:
        """Return the positions of the Releases of what comes back or is made again after them."""
        seen, found = set[int](), set[int]()
        for position in reversed(range(len(self._plan.operations))):
            match self._plan.operations[position]:
                case Prefetch(buffer=buffer):
                    seen.add(buffer)
                case Compute(repeat=repeat, writes=writes) if repeat:
                    seen.update(writes)
                case Release(buffer=buffer) if buffer in seen:
                    found.add(position)
                    seen.discard(buffer)
                case _:
                    pass
        return frozenset(found)


def _leaves(action: Action, storage: int) -> bool:
    return isinstance(action, Leave) and action.storage == storage
