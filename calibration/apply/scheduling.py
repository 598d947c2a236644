"""Translates a plan into the schedule of a live loop.

Copies begin at the first point (`LiveSchedule`) at or after their place in the plan; memory is released at the last
point before it, so that no more is live than planned.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container
from itertools import accumulate

from calibration.apply.live_schedule import Action, Free, LiveSchedule, Offload, Prefetch, Recompute, Release
from calibration.capture.tape import Tape
from calibration.executor.pinned_arena import lay_copies
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plans import operations as planned
from vdnnsim.plans.buffers import states_of_update
from vdnnsim.plans.training_plan import TrainingPlan


def schedule_of(plan: TrainingPlan, tape: Tape, free: Container[int]) -> LiveSchedule:
    """Return the schedule of a plan for a workload captured with a tape.

    Only `free` storages, as of `movable_storages`, are offloaded or released.

    Raises:
        ExecutionRefused: the plan runs operations in another order than the program.
    """
    return _Scheduler(plan, tape, free).schedule()


class _Scheduler:
    def __init__(self, plan: TrainingPlan, tape: Tape, free: Container[int]) -> None:
        self._plan, self._tape, self._free, self._step = plan, tape, free, plan.workload.step
        self._layout = lay_copies(plan)
        issued = [each.issued for each in tape.saves] + [each.issued for each in tape.unpacks]
        self._points = list(accumulate(issued, max))
        self._last_save = {each.storage: at for at, each in enumerate(tape.saves)}
        unpacked = [tape.saves[each.save].storage for each in tape.unpacks]
        self._first_unpack = {each: at + len(tape.saves) for at, each in reversed(list(enumerate(unpacked)))}
        self._due: list[list[Action]] = [[] for _ in self._points]
        # By storage the point of its last offload; by extent on the host, point and action of its offload.
        self._offloaded_at: dict[int, int] = {}
        self._on_host: dict[tuple[int, range], tuple[int, Offload]] = {}
        self._freed_bytes = Counter[int]()
        self._recomputed_operations: set[int] = set()
        repeats = [each for each in plan.operations if isinstance(each, planned.Compute) and each.repeat]
        kept = {buffer for each in repeats if not self._can_repeat(each) for buffer in each.writes}
        self._rewritten = {buffer for each in repeats for buffer in each.writes} - kept
        self._recomputed: set[int] = set()
        # Operations of the program so far.
        self._place = 0

    def schedule(self) -> LiveSchedule:
        returning = self._released_for_return()
        for position, operation in enumerate(self._plan.operations):
            match operation:
                case planned.Compute() if not operation.repeat or self._can_repeat(operation):
                    self._compute(operation)
                case planned.Offload(buffer=buffer, copy=0) if self._moves(buffer):
                    # One copy of a storage serves all its tensors.
                    self._offload(operation, position)
                case planned.Prefetch(buffer=buffer) if self._moves(buffer):
                    self._prefetch(operation)
                case planned.ReleaseExtent(buffer=buffer, extent=extent) if self._moves(buffer):
                    self._freed_bytes[buffer] += len(extent)
                    if self._freed_bytes[buffer] == self._plan.buffers[buffer].nbytes:
                        self._release(self._storage(buffer))
                case planned.AllocateExtent(buffer=buffer, extent=extent) if self._moves(buffer):
                    self._freed_bytes[buffer] -= len(extent)
                case planned.Release(buffer=buffer):
                    self._release_buffer(buffer, returns=position in returning)
                case _:
                    pass
        return self._finished()

    def _finished(self) -> LiveSchedule:
        # A copy without a release frees nothing, as where the program holds the storage until its unpack.
        released = {each.storage for due in self._due for each in due if isinstance(each, Release)}
        stays = self._offloaded_at.keys() - released
        actions = tuple(
            tuple(each for each in due if not (isinstance(each, Offload | Prefetch) and each.storage in stays))
            for due in self._due
        )
        workload = self._plan.workload
        assert isinstance(workload, CapturedWorkload), "a loop's step was captured"
        return LiveSchedule(
            workload.captured,
            self._tape,
            actions,
            tuple(self._points),
            frozenset(self._offloaded_at.keys() & released),
            frozenset(self._recomputed),
            frozenset(self._recomputed_operations),
            self._layout.nbytes,
            sum(len(each.extent) for due in actions for each in due if isinstance(each, Offload)),
            self._states(),
        )

    def _states(self) -> dict[str, range]:
        offsets = {self._storage(buffer): offset for buffer, offset in self._layout.given.items()}
        states = {number: self._step.storages[number] for number in sorted(states_of_update(self._step))}
        return {
            each.name: range(offsets[number], offsets[number] + each.nbytes) if number in offsets else range(0)
            for number, each in states.items()
            if offsets
        }

    def _number(self, kernel: planned.Compute) -> int:
        return self._step.numbers_of(kernel.layer, kernel.phase)[kernel.operation]

    def _can_repeat(self, kernel: planned.Compute) -> bool:
        """Whether a loop may recompute an operation: it is of the model and repeatable."""
        number = self._number(kernel)
        return number in self._tape.of_model and self._step.operations[number].repeatable

    def _compute(self, kernel: planned.Compute) -> None:
        number = self._number(kernel)
        if kernel.repeat:
            self._recomputed_operations.add(number)
            self._at(bisect_left(self._points, self._place), Recompute(number))
        elif number < self._place:
            raise ExecutionRefused(
                f"{self._plan.policy}: runs operation {number} after operation {self._place - 1}, expected a plan in "
                "the order of the program"
            )
        else:
            self._place = number + 1

    def _offload(self, operation: planned.Offload, position: int) -> None:
        storage, extent = self._storage(operation.buffer), self._extent(operation)
        point = max(bisect_left(self._points, self._place), self._last_save[storage])
        if point < self._first_unpack[storage]:
            self._offloaded_at[storage] = max(point, self._offloaded_at.get(storage, 0))
            action = Offload(storage, extent, self._layout.offsets[position])
            self._on_host[storage, extent] = point, action
            self._at(point, action)

    def _prefetch(self, operation: planned.Prefetch) -> None:
        storage, extent = self._storage(operation.buffer), self._extent(operation)
        offloaded_at, offload = self._on_host.pop((storage, extent), (0, None))
        point = min(bisect_left(self._points, self._place), self._first_unpack[storage])
        if offload is not None and point < offloaded_at:
            # Prefetched before its last save: it is kept, and others get its slot.
            self._due[offloaded_at].remove(offload)
            self._keep(storage)
        elif offload is not None:
            self._at(point, Prefetch(storage, extent))

    def _keep(self, storage: int) -> None:
        """Keep a storage on the device, if no bytes of it are offloaded any more."""
        del self._offloaded_at[storage]
        for point, due in enumerate(self._due):
            if any(isinstance(each, Offload) and each.storage == storage for each in due):
                self._offloaded_at[storage] = point
        if storage not in self._offloaded_at:
            for due in self._due:
                due[:] = [each for each in due if each != Release(storage)]

    def _release_buffer(self, buffer: int, *, returns: bool) -> None:
        storage = self._plan.buffers[buffer].storage
        if storage is None:
            return
        if returns and self._moves(buffer):
            if storage not in self._offloaded_at and buffer in self._rewritten:
                self._recomputed.add(storage)
            if storage in self._offloaded_at or storage in self._recomputed:
                self._release(storage)
        elif buffer in self._rewritten and storage not in self._last_save:
            self._at(bisect_left(self._points, self._place), Free(storage))

    def _release(self, storage: int) -> None:
        unpack = self._first_unpack[storage]
        if self._place > self._points[unpack]:
            # Backward has unpacked it.
            return
        before = min(bisect_right(self._points, self._place), unpack) - 1
        point = max(before, self._last_save[storage], self._offloaded_at.get(storage, 0))
        if point < unpack:
            self._at(point, Release(storage))

    def _at(self, point: int, action: Action) -> None:
        if self._due:
            self._due[min(point, len(self._due) - 1)].append(action)

    def _moves(self, buffer: int) -> bool:
        return self._plan.buffers[buffer].storage in self._free

    def _storage(self, buffer: int) -> int:
        storage = self._plan.buffers[buffer].storage
        assert storage is not None, "a moved buffer is a storage of the step"
        return storage

    def _extent(self, copy: planned.Offload | planned.Prefetch) -> range:
        return copy.extent or range(self._plan.buffers[copy.buffer].nbytes)

    def _released_for_return(self) -> frozenset[int]:
        """Return the positions of releases of buffers that are prefetched or recomputed later."""
        seen, found = set[int](), set[int]()
        for position, operation in reversed(list(enumerate(self._plan.operations))):
            match operation:
                case planned.Prefetch(buffer=buffer):
                    seen.add(buffer)
                case planned.Compute(repeat=repeat, writes=writes) if repeat:
                    seen.update(writes)
                case planned.Release(buffer=buffer) if buffer in seen:
                    found.add(position)
                    seen.discard(buffer)
                case _:
                    pass
        return frozenset(found)
