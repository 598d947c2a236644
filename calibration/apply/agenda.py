"""A plan as what is to be done at each moment that a live loop tells of: each save of forward, each take of backward.

Copies begin at the first moment at or after their place in the plan; memory is given back at the last moment before its
place, so that no more is held than was promised; what comes back begins to at the first moment after its place.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass

from calibration.arena import lay_copies
from calibration.capture.tape import Tape
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plan.operations import AllocateExtent, Compute, Offload, Prefetch, Release, ReleaseExtent
from vdnnsim.plan.training_plan import TrainingPlan


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
        moved: storages that leave; `remade`: those that are given up and computed again.
        again: operations that may have to run again.
        pinned_bytes: of the host.
        offloaded_bytes: that leave in a step.
    """

    tape: Tape
    actions: tuple[tuple[Action, ...], ...]
    moved: frozenset[int]
    remade: frozenset[int]
    again: frozenset[int]
    pinned_bytes: int
    offloaded_bytes: int


def agenda_of(plan: TrainingPlan, tape: Tape, free: frozenset[int]) -> Agenda:
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
    def __init__(self, plan: TrainingPlan, tape: Tape, free: frozenset[int]) -> None:
        self._plan, self._tape, self._free = plan, tape, free
        self._layout = lay_copies(plan)
        self._moments = [each.issued for each in tape.saves] + [each.issued for each in tape.takes]
        # Operations that were issued before a moment never become fewer.
        for at in range(1, len(self._moments)):
            self._moments[at] = max(self._moments[at], self._moments[at - 1])
        self._last_save = {each.storage: at for at, each in enumerate(tape.saves)}
        self._first_take: dict[int, int] = {}
        for at, take in enumerate(tape.takes):
            self._first_take.setdefault(tape.saves[take.save].storage, at + len(tape.saves))
        self._due = defaultdict[int, list[Action]](list)
        self._left: dict[int, int] = {}  # storages that have begun to leave, by the moment

    def agenda(self) -> Agenda:
        plan = self._plan
        step = plan.workload.step
        numbers = {id(each): number for number, each in enumerate(step.operations)}
        place, again = 0, set[int]()
        away: dict[int, int] = defaultdict(int)
        moved, remade = set[int](), set[int]()
        places: dict[tuple[int, range], int] = {}
        runs_again = {buffer for each in plan.operations if isinstance(each, Compute) and each.repeat for buffer in each.writes}
        ends, unsaved = self._released_for_return(), set[int | None]()
        for position, operation in enumerate(plan.operations):
            match operation:
                case Compute(layer=layer, phase=phase, operation=which, repeat=repeat):
                    number = numbers[id(step.operations_of(layer, phase)[which])]
                    if repeat:
                        again.add(number)
                        unsaved.update(self._plan.buffers[each].storage for each in operation.writes)
                        self._at(bisect_left(self._moments, place), Again(number))
                    elif number < place:
                        raise ExecutionRefused(
                            f"{plan.policy}: runs operation {number} after operation {place - 1}, expected a plan in "
                            "the order of the program"
                        )
                    else:
                        place = number + 1
                case Offload(buffer=buffer, copy=0) if self._moves(buffer) and place <= self._moments[-1]:
                    # One copy of a storage serves all tensors of it, however many the plan makes.
                    extent = operation.extent or range(plan.buffers[buffer].nbytes)
                    storage = self._storage(buffer)
                    moment = max(bisect_left(self._moments, place), self._last_save[storage])
                    if moment >= self._first_take[storage]:
                        continue
                    self._left[storage] = max(moment, self._left.get(storage, 0))
                    moved.add(storage)
                    places[storage, extent] = self._layout.offsets[position]
                    self._at(moment, Leave(storage, extent, places[storage, extent]))
                case Prefetch(buffer=buffer) if self._moves(buffer) and self._storage(buffer) in moved:
                    extent = operation.extent or range(plan.buffers[buffer].nbytes)
                    storage = self._storage(buffer)
                    if places.pop((storage, extent), None) is not None:
                        moment = min(bisect_left(self._moments, place), self._first_take[storage])
                        self._at(moment, Come(storage, extent))
                case ReleaseExtent(buffer=buffer, extent=extent) if self._moves(buffer):
                    away[buffer] += len(extent)
                    if away[buffer] == plan.buffers[buffer].nbytes:
                        self._give(self._storage(buffer), place)
                case AllocateExtent(buffer=buffer, extent=extent) if self._moves(buffer):
                    away[buffer] -= len(extent)
                case Release(buffer=buffer) if self._moves(buffer) and position in ends:
                    storage = self._storage(buffer)
                    if storage not in moved and buffer in runs_again:
                        remade.add(storage)
                    if storage in moved | remade:
                        self._give(storage, place)
                case Release(buffer=buffer) if (storage := plan.buffers[buffer].storage) in unsaved and again:
                    if storage is not None and storage not in self._first_take:
                        self._at(bisect_left(self._moments, place), Forget(storage))
                case _:
                    pass
        # To copy what stays frees nothing, as what the program itself holds until backward takes it.
        given = {each.storage for due in self._due.values() for each in due if isinstance(each, Give)}
        stays = moved - given
        actions = tuple(
            tuple(each for each in self._due[at] if not (isinstance(each, Leave | Come) and each.storage in stays))
            for at in range(len(self._moments))
        )
        leaving = (each for due in actions for each in due if isinstance(each, Leave))
        return Agenda(
            self._tape, actions, frozenset(moved & given), frozenset(remade), frozenset(again), self._layout.nbytes, sum(len(each.extent) for each in leaving)
        )

    def _moves(self, buffer: int) -> bool:
        return self._plan.buffers[buffer].storage in self._free

    def _storage(self, buffer: int) -> int:
        storage = self._plan.buffers[buffer].storage
        assert storage is not None, "what is moved is of the step"
        return storage

    def _at(self, moment: int, action: Action) -> None:
        self._due[min(moment, len(self._moments) - 1)].append(action)

    def _give(self, storage: int, place: int) -> None:
        before = min(bisect_right(self._moments, place), self._first_take[storage]) - 1
        moment = max(before, self._last_save[storage], self._left.get(storage, 0))
        if moment < self._first_take[storage]:
            self._at(moment, Give(storage))

    def _released_for_return(self) -> frozenset[int]:
        """Return the positions of the Releases of what comes back or is made again after them."""
        seen, found = set[int](), set[int]()
        for position in reversed(range(len(self._plan.operations))):
            operation = self._plan.operations[position]
            match operation:
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
