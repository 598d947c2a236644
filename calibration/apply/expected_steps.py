"""The schedule of a live loop, operation by operation: `StepHooks` on storages without memory.

Both must agree; `tests/apply/test_expected_plan.py` compares them.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from calibration.apply import live_schedule as live
from calibration.apply.live_schedule import LiveSchedule
from calibration.apply.recomputation import can_recompute, recomputing
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import Compute
from vdnnsim.plans.schedule import Offload, Prefetch, Release, Run, ScheduleStep, Wait
from vdnnsim.plans.training_plan import TrainingPlan

_NEVER = 1 << 62


@dataclass(eq=False, slots=True)
class _Storage:
    """As `calibration.apply.saved_storage.SavedStorage`.

    Attributes:
        on_host: extents there whose prefetch has not begun.
        is_coming: whether a prefetch has begun that no stream has waited for.
    """

    number: int
    is_live: bool
    can_be_recomputed: bool = False
    on_host: list[range] = field(default_factory=list)
    is_coming: bool = False
    is_returning: bool = False

    @property
    def is_on_host(self) -> bool:
        return (not self.is_live and bool(self.on_host)) or self.is_coming


@dataclass(frozen=True, slots=True)
class _Recipe:
    """As `calibration.apply.recipe.Recipe`."""

    steps: "ExpectedSteps"
    read: tuple[_Storage, ...]
    made: tuple[_Storage, ...]
    is_simple: bool

    @property
    def wanted(self) -> list[_Storage]:
        return [each for each in self.made if self.steps.is_wanted(each)]


class ExpectedSteps:
    """The schedule of a loop."""

    def __init__(self, plan: TrainingPlan, schedule: LiveSchedule) -> None:
        workload = plan.workload
        assert isinstance(workload, CapturedWorkload), "a loop's step was captured"
        self._schedule, self._tape, self._step = schedule, schedule.tape, workload.step
        layers = workload.graph.layers
        self._runs: dict[int, Run] = {}
        self._repeats: dict[int, Run] = {}
        for each in plan.operations:
            if isinstance(each, Compute):
                number = self._step.numbers_of(each.layer, each.phase)[each.operation]
                run = Run(layers[each.layer], each.phase, each.repeat, each.part, each.barrier_s, each.operation)
                (self._repeats if each.repeat else self._runs)[number] = run
        self._last = next(iter(self._runs.values()))
        self._find_unpacks()
        self._find_lifetimes()
        self._storages: dict[int, _Storage] = {}
        self._recipes: dict[int, _Recipe] = {}
        self._issued = 0
        # By operation the storages to free after it, which it reads.
        self._behind = defaultdict[int, list[int]](list)

    def _find_unpacks(self) -> None:
        """Find the storage unpacked at each point, and by storage the operation after which it is not unpacked."""
        first, storages = self._schedule.unpack_points, [each.storage for each in self._tape.saves]
        self._unpacked = {point: storages[save] for save, point in first.items()}
        self._wanted_until: dict[int, int] = {}
        for save, storage in enumerate(storages):
            until = self._schedule.issued[first[save]] if save in first else _NEVER
            self._wanted_until[storage] = max(until, self._wanted_until.get(storage, 0))

    def _find_lifetimes(self) -> None:
        """Find by storage the last operation that touches or holds it, and the last such before its first unpack."""
        unpacked = {self._tape.saves[each.save].storage: each.issued for each in reversed(self._tape.unpacks)}
        self._last_touch, self._let_go = dict[int, int](), dict[int, int]()
        for number, operation in enumerate(self._step.operations):
            for storage in (*operation.holds, *self._touched(number)):
                self._last_touch[storage] = number
                if number < unpacked.get(storage, -1):
                    self._let_go[storage] = number

    def steps(self) -> Iterator[ScheduleStep]:
        points = enumerate(self._schedule.issued)
        point, issued = next(points, (0, _NEVER))
        for number, run in self._runs.items():
            while issued <= number:
                yield from self._reach(point, issued, number)
                point, issued = next(points, (0, _NEVER))
            touched = dict.fromkeys(self._touched(number))
            read = tuple(self._storages[each] for each in touched if each in self._storages)
            self._last = run
            yield run
            self._note_made(number, read)
            for storage in dict.fromkeys(self._behind[number]):
                yield Release((storage,))

    def _note_made(self, number: int, read: tuple[_Storage, ...]) -> None:
        """Note results that can be recomputed; those that autograd does not save are released at once."""
        schedule = self._schedule
        if not schedule.recomputed_operations or number not in self._tape.of_model:
            return
        made = []
        for storage in schedule.made_by.get(number, ()):
            if storage in schedule.recomputable or storage in schedule.offloaded:
                is_saved = storage in schedule.saved
                self._storages[storage] = _Storage(storage, is_saved, can_be_recomputed=not is_saved)
            if storage in schedule.recomputable:
                made.append(self._storages[storage])
        if number in schedule.recomputed_operations:
            is_rewritten = any(schedule.writers[each.number][-1] > number for each in read)
            is_simple = number in schedule.alone and not is_rewritten
            self._recipes[number] = _Recipe(self, read, tuple(made), is_simple)

    def _reach(self, point: int, issued: int, following: int) -> Iterator[ScheduleStep]:
        self._issued = issued
        if point < len(self._tape.saves):
            number = self._tape.saves[point].storage
            if number in self._schedule.offloaded or number in self._schedule.recomputed:
                self._storages.setdefault(number, _Storage(number, is_live=True))
        for action in self._schedule.actions[point]:
            yield from self._do(action, following)
        if self._unpacked.get(point) in self._storages:
            yield from self._materialize(self._storages[self._unpacked[point]])

    def _do(self, action: live.Action, following: int) -> Iterator[ScheduleStep]:
        if isinstance(action, live.Recompute):
            recipe = self._recipes.get(action.operation)
            for each in recipe.wanted if recipe else ():
                if not each.is_live:
                    yield from self._materialize(each)
            return
        storage = self._storages.get(action.storage)
        if storage is None or not self.is_wanted(storage):
            return
        match action:
            case live.Offload(extent=extent) if storage.is_live:
                storage.on_host.append(extent)
                part = self._part(storage, extent)
                yield Offload((storage.number,), self._last.layer, self._last.phase, extent=part)
            case live.Prefetch(extent=extent):
                yield from self._prefetch(storage, extent, on_demand=False)
            case live.Release():
                yield from self._release(storage, following)
            case live.Free() if storage.is_live and not storage.is_on_host:
                storage.is_live = False
                if self._last_touch.get(storage.number, -1) < following:
                    yield Release((storage.number,))
            case _:
                pass

    def _release(self, storage: _Storage, following: int) -> Iterator[ScheduleStep]:
        number = storage.number
        storage.can_be_recomputed |= can_recompute(number, self._schedule, self._recipes)
        is_copied = sum(map(len, storage.on_host)) >= self._step.storages[number].nbytes
        if not storage.is_live or not (storage.can_be_recomputed or is_copied):
            return
        storage.is_live = False
        if storage.on_host:
            yield Wait((number,))
        if (let_go := self._let_go.get(number, -1)) >= following:
            # The loop waits here, and an operation that still reads it runs before it is freed.
            self._behind[let_go].append(number)
        elif not storage.on_host:
            yield Release((number,))

    def _prefetch(self, storage: _Storage, extent: range, *, on_demand: bool) -> Iterator[ScheduleStep]:
        if extent not in storage.on_host:
            return
        if not storage.is_live:
            storage.is_live = storage.is_returning = True
        storage.on_host.remove(extent)
        if storage.is_returning:
            storage.is_coming = True
            part = self._part(storage, extent)
            yield Prefetch((storage.number,), self._last.layer, Phase.BACKWARD, on_demand=on_demand, extent=part)

    def _materialize(self, storage: _Storage) -> Iterator[ScheduleStep]:
        if storage.is_live and not storage.is_returning:
            return
        if not storage.is_live and not storage.on_host:
            yield from self._recompute(storage.number)
        for extent in tuple(storage.on_host):
            yield from self._prefetch(storage, extent, on_demand=True)
        if storage.is_coming:
            yield Wait((storage.number,))
        storage.is_coming = storage.is_returning = False

    def _recompute(self, number: int) -> Iterator[ScheduleStep]:
        operations = recomputing(number, self._schedule, self._recipes, lambda _: None)
        for each in operations:
            for read in self._recipes[each].read:
                yield from self._materialize(read)
            yield self._repeats[each]
            for made in self._recipes[each].wanted:
                if not made.is_live:
                    made.is_live = True
                    made.on_host.clear()
        for each in operations:
            del self._recipes[each]

    def is_wanted(self, storage: _Storage) -> bool:
        """Whether autograd or a recipe still needs a storage; one that is never saved is kept by the loop."""
        number = storage.number
        if number not in self._schedule.saved or self._wanted_until[number] >= self._issued:
            return True
        return any(storage in each.read for each in self._recipes.values())

    def _part(self, storage: _Storage, extent: range) -> range | None:
        return None if len(extent) == self._step.storages[storage.number].nbytes else extent

    def _touched(self, number: int) -> Iterator[int]:
        return (self._step.tensors[each.memory].storage for each in self._step.operations[number].operands)
