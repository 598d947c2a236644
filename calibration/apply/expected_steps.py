"""What a live loop will do, operation by operation: what `Following` does, on storages that are numbers.

Each moment that the loop tells of does what the agenda has for it; each take of backward brings back what it takes;
what is computed again takes along what it reads that is not there. All of it here is as there, or the promise is of
another loop: `tests/apply/test_promised.py` holds them together.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from calibration.apply.plan_actions import Action, Again, Agenda, Come, Forget, Give, Leave
from calibration.apply.storage_uses import made_by, touched_by
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import Compute
from vdnnsim.plans.schedule import Offload, Prefetch, Run, ScheduleStep, Wait
from vdnnsim.plans.schedule import Release as GiveUp
from vdnnsim.plans.training_plan import TrainingPlan

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What an operation that may run again reads of what may be gone, and what it makes of it."""

    read: tuple[int, ...]
    made: tuple[int, ...]


@dataclass(slots=True)
class _Held:
    """As `calibration.apply.saved_storage.Held`.

    Attributes:
        is_live: whether its memory is on the GPU.
        on_host: extents that lie there and have not begun to come.
        coming: whether a copy back has begun that nobody has waited for.
    """

    is_live: bool
    on_host: list[range] = field(default_factory=list)
    coming: bool = False
    is_returning: bool = False
    can_be_remade: bool = False

    @property
    def is_away(self) -> bool:
        return (not self.is_live and bool(self.on_host)) or self.coming


class LoopSteps:
    """The steps of a schedule that does what a loop does.

    Args:
        plan: of a captured workload.
        agenda: of the plan.
    """

    def __init__(self, plan: TrainingPlan, agenda: Agenda) -> None:
        workload = plan.workload
        assert isinstance(workload, CapturedWorkload), "a loop's step was captured"
        self._agenda, self._tape, self._step = agenda, agenda.tape, workload.step
        numbers = {id(each): number for number, each in enumerate(self._step.operations)}
        layers = workload.graph.layers
        self._runs: dict[int, Run] = {}
        self._repeats: dict[int, Run] = {}
        for each in plan.operations:
            if isinstance(each, Compute):
                number = numbers[id(self._step.operations_of(each.layer, each.phase)[each.operation])]
                run = Run(layers[each.layer], each.phase, each.repeat, each.part, each.barrier_s, each.operation)
                (self._repeats if each.repeat else self._runs)[number] = run
        self._last = next(iter(self._runs.values()))
        captured = workload.captured
        self._made_by = made_by(captured)
        self._writers, self._readers = touched_by(captured, writes=True), touched_by(captured, writes=False)
        self._remakable = {each for each, by in self._writers.items() if agenda.again.issuperset(by)}
        self._saved = {each.storage for each in self._tape.saves}
        self._find_takes()
        self._find_lifetimes()
        self._held: dict[int, _Held] = {}
        self._recipes: dict[int, _Recipe] = {}
        self._issued = 0
        # By operation what is given back once it has run, for it still reads it.
        self._behind = defaultdict[int, list[int]](list)

    def _find_takes(self) -> None:
        """Find which storage each moment of backward takes, and behind which operation none takes one any more."""
        count, storages = len(self._tape.saves), [each.storage for each in self._tape.saves]
        first = {each.save: at + count for at, each in reversed(list(enumerate(self._tape.takes)))}
        self._takes = {moment: storages[save] for save, moment in first.items()}
        self._wanted_until: dict[int, int] = {}
        for save, storage in enumerate(storages):
            until = self._agenda.issued[first[save]] if save in first else _NEVER
            self._wanted_until[storage] = max(until, self._wanted_until.get(storage, 0))

    def _find_lifetimes(self) -> None:
        """Find by storage the last operation that touches or holds it, and the last before backward takes it."""
        taken = {self._tape.saves[each.save].storage: each.issued for each in reversed(self._tape.takes)}
        self._last_touch, self._let_go = dict[int, int](), dict[int, int]()
        for number, operation in enumerate(self._step.operations):
            for storage in (*operation.holds, *self._touched(number)):
                self._last_touch[storage] = number
                if number < taken.get(storage, -1):
                    self._let_go[storage] = number

    def steps(self) -> Iterator[ScheduleStep]:
        """Yield them in their order."""
        moments = enumerate(self._agenda.issued)
        moment, issued = next(moments, (0, _NEVER))
        for number, run in self._runs.items():
            while issued <= number:
                yield from self._come_to(moment, issued, number)
                moment, issued = next(moments, (0, _NEVER))
            read = tuple(each for each in dict.fromkeys(self._touched(number)) if each in self._held)
            self._last = run
            yield run
            self._note_made(number, read)
            for storage in dict.fromkeys(self._behind[number]):
                yield GiveUp((storage,))

    def _note_made(self, number: int, read: tuple[int, ...]) -> None:
        """Note what an operation has made that can be made again; what autograd never keeps is not kept either."""
        if not self._agenda.again or number >= self._tape.of_model:
            return
        made = tuple(each for each in self._made_by.get(number, ()) if each in self._remakable)
        for storage in self._made_by.get(number, ()):
            if storage in self._remakable or storage in self._agenda.moved:
                is_live = storage in self._saved
                self._held[storage] = _Held(is_live, can_be_remade=not is_live)
        if number in self._agenda.again:
            self._recipes[number] = _Recipe(read, made)

    def _come_to(self, moment: int, issued: int, following: int) -> Iterator[ScheduleStep]:
        self._issued = issued
        if moment < len(self._tape.saves):
            storage = self._tape.saves[moment].storage
            if storage in self._agenda.moved or storage in self._agenda.remade:
                self._held.setdefault(storage, _Held(is_live=True))
        for action in self._agenda.actions[moment]:
            yield from self._do(action, following)
        if self._takes.get(moment) in self._held:
            yield from self._bring(self._takes[moment])

    def _do(self, action: Action, following: int) -> Iterator[ScheduleStep]:
        if isinstance(action, Again):
            recipe = self._recipes.get(action.operation)
            for storage in self._wanted(recipe) if recipe else ():
                if not self._held[storage].is_live:
                    yield from self._bring(storage)
            return
        held = self._held.get(action.storage)
        if held is None or not self._is_wanted(action.storage):
            return
        match action:
            case Leave(storage=storage, extent=extent) if held.is_live:
                held.on_host.append(extent)
                yield Offload((storage,), self._last.layer, self._last.phase, extent=self._part(storage, extent))
            case Come(storage=storage, extent=extent):
                yield from self._come(storage, extent, on_demand=False)
            case Give(storage=storage):
                yield from self._give(storage, following)
            case Forget(storage=storage) if held.is_live and not held.is_away:
                held.is_live = False
                if self._last_touch.get(storage, -1) < following:
                    yield GiveUp((storage,))
            case _:
                pass

    def _give(self, storage: int, following: int) -> Iterator[ScheduleStep]:
        held = self._held[storage]
        held.can_be_remade |= self._can_be_remade(storage)
        left = sum(map(len, held.on_host)) >= self._step.storages[storage].nbytes
        if not held.is_live or not (held.can_be_remade or left):
            return
        held.is_live = False
        if held.on_host:
            yield Wait((storage,))
        if (let_go := self._let_go.get(storage, -1)) >= following:
            # The loop waits here all the same; memory goes with what the operation to come still reads.
            self._behind[let_go].append(storage)
        elif not held.on_host:
            yield GiveUp((storage,))

    def _can_be_remade(self, storage: int) -> bool:
        """Whether what made a storage can run again: nothing that it read is written over, but with it."""
        if storage not in self._remakable or storage not in self._agenda.remade:
            return False
        made = [each for each in self._writers[storage] if each in self._recipes]
        read = {each: by for by in made for each in self._recipes[by].read if each != storage}
        later = [each for each, by in read.items() if self._writers[each] and self._writers[each][-1] > by]
        gone = (each in self._remakable and (each in self._agenda.remade or each not in self._saved) for each in later)
        is_made = any(storage in self._wanted(self._recipes[each]) for each in made)
        return is_made and len(made) == len(self._writers[storage]) and all(gone)

    def _come(self, storage: int, extent: range, *, on_demand: bool) -> Iterator[ScheduleStep]:
        held = self._held[storage]
        if extent not in held.on_host:
            return
        if not held.is_live:
            held.is_live = held.is_returning = True
        held.on_host.remove(extent)
        if held.is_returning:
            held.coming = True
            part = self._part(storage, extent)
            yield Prefetch((storage,), self._last.layer, Phase.BACKWARD, on_demand=on_demand, extent=part)

    def _bring(self, storage: int) -> Iterator[ScheduleStep]:
        held = self._held[storage]
        if held.is_live and not held.is_returning:
            return
        if not held.is_live and not held.on_host:
            yield from self._remake(storage)
        for extent in tuple(held.on_host):
            yield from self._come(storage, extent, on_demand=True)
        if held.coming:
            yield Wait((storage,))
        held.coming = held.is_returning = False

    def _remake(self, storage: int) -> Iterator[ScheduleStep]:
        """Run what made a storage again, with what it reads that is not there, in the order of forward."""
        operations = set[int]()
        wanted, seen = [storage], {storage}
        while wanted:
            found = self._together(wanted.pop()) - operations
            operations |= found
            for each in (each for one in found for each in self._touched_again(self._recipes[one])):
                if not self._held[each].is_live and each not in seen:
                    seen.add(each)
                    if not self._held[each].is_away:
                        wanted.append(each)
        for each in sorted(operations):
            recipe = self._recipes[each]
            for read in recipe.read:
                yield from self._bring(read)
            yield self._repeats[each]
            for made in self._wanted(recipe):
                if not self._held[made].is_live:
                    self._held[made].is_live = True
                    self._held[made].on_host.clear()
        for each in operations:
            if all(self._held[made].is_live for made in self._wanted(self._recipes[each])):
                del self._recipes[each]

    def _together(self, storage: int) -> set[int]:
        """Return the operations that write a storage, and those that read it before the last of these has."""
        writers = self._writers[storage]
        between = (each for each in self._readers.get(storage, ()) if writers[0] < each < writers[-1])
        return {each for each in (*writers, *between) if each in self._recipes}

    def _touched_again(self, recipe: _Recipe) -> Iterator[int]:
        yield from recipe.read
        yield from self._wanted(recipe)

    def _wanted(self, recipe: _Recipe) -> list[int]:
        """Return what of that which an operation makes somebody still wants."""
        return [each for each in recipe.made if self._is_wanted(each)]

    def _is_wanted(self, storage: int) -> bool:
        """Whether autograd keeps a storage or what runs again reads it; what autograd never keeps, the loop does."""
        if storage not in self._saved or self._wanted_until[storage] >= self._issued:
            return True
        return any(storage in each.read for each in self._recipes.values())

    def _part(self, storage: int, extent: range) -> range | None:
        return None if len(extent) == self._step.storages[storage].nbytes else extent

    def _touched(self, number: int) -> Iterator[int]:
        return (self._step.tensors[each.memory].storage for each in self._step.operations[number].operands)
