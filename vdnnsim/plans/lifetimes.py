"""Lifetimes of the buffers of a schedule, and its copies that something waits for."""

from dataclasses import dataclass
from itertools import pairwise

from vdnnsim.dnn.step import BufferKind
from vdnnsim.errors import PlanError
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.schedule import Allocate, Offload, Prefetch, Release, Run, Schedule, ScheduleStep, Synchronize, Wait

Copied = tuple[int, range | None]
"""A copied buffer, and the extent of it."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The lifetimes that a scheme of allocation follows.

    Attributes:
        begins, ends: by step, the buffers whose life begins or ends with it.
        awaited: copies that a stream waits for, as position of the step and buffer.
        departing: offloads that are the last use of the buffer before the wait that ends it.
    """

    given: list[int]
    begins: list[list[int]]
    ends: list[list[int]]
    awaited: frozenset[tuple[int, int]]
    departing: frozenset[tuple[int, int]]


def touched(step: ScheduleStep, buffers: IterationBuffers) -> tuple[list[int], list[int]]:
    """Return the buffers that a step reads or holds and those that it writes, workspaces aside."""
    match step:  # pragma: no branch
        case Run():
            return buffers.touched(step)
        case Offload(buffers=what) | Wait(buffers=what) | Release(buffers=what):
            return list(what), []
        case Prefetch(buffers=what) | Allocate(buffers=what):
            return [], list(what)
        case Synchronize():
            return [], []


def lifetimes(
    schedule: Schedule, buffers: IterationBuffers, throughout: frozenset[int] = frozenset(), *, label: str = "schedule"
) -> Lifetimes:
    """Return the lifetimes of the buffers of a schedule, but of those that are held throughout.

    Raises:
        PlanError: a buffer is offloaded and neither released nor prefetched after; or released and used without a
            prefetch; or waited for without a copy. The message names it and the layer.
    """
    return _Survey(schedule, buffers, throughout, label).lifetimes()


@dataclass(frozen=True, slots=True)
class _Life:
    """A buffer from the step that first writes it to the last that uses what was written then."""

    buffer: int
    touched_by: list[int]


class _Survey:
    def __init__(self, schedule: Schedule, buffers: IterationBuffers, throughout: frozenset[int], label: str) -> None:
        self._schedule = schedule
        self._buffers = buffers
        self._throughout = throughout
        self._label = label
        self._given: list[int] = []
        self._begins: list[list[int]] = [[] for _ in schedule]
        self._ended: list[_Life] = []
        self._living: dict[int, _Life] = {}
        # By buffer and extent the copies not yet waited for, as step and place in it; copies that are waited for, and
        # the last of their steps; extents whose memory was released; the last prefetch of a copy.
        self._under_way: dict[int, dict[range | None, tuple[int, int]]] = {}
        self._awaited: set[tuple[int, int]] = set()
        self._waited_for = -1
        self._away: set[Copied] = set()
        self._fetched: dict[tuple[int, int], int] = {}
        # Buffers that the running layer has used since it began or was synchronized.
        self._layer: tuple[int, bool] | None = None
        self._of_layer: dict[int, None] = {}

    def lifetimes(self) -> Lifetimes:
        for position, step in enumerate(self._schedule):
            reads, writes = touched(step, self._buffers)
            if isinstance(step, Synchronize):
                self._touch(position, list(self._of_layer), [])
                self._of_layer = {}
                self._under_way = {}
                continue
            if isinstance(step, Prefetch):
                self._fetched |= {(buffer, step.copy): position for buffer in writes}
            self._touch(position, reads, writes)
            self._follow_copies(position, step, reads + writes)
            self._follow_layer(step, reads + writes)
        self._ended += self._living.values()
        ends: list[list[int]] = [[] for _ in self._schedule]
        results = self._buffers.results
        departing: set[tuple[int, int]] = set()
        for life in self._ended:
            self._check(life)
            if life.buffer in self._throughout:
                continue
            ends[-1 if life.buffer in results else life.touched_by[-1]].append(life.buffer)
            if isinstance(self._schedule[life.touched_by[-1]], Wait):
                departing.add((life.touched_by[-2], life.buffer))
        for step, dying in zip(self._schedule, ends, strict=True):
            if isinstance(step, Release):
                dying.sort(key=step.buffers.index)
        return Lifetimes(self._given, self._begins, ends, frozenset(self._awaited), frozenset(departing))

    def _touch(self, position: int, reads: list[int], writes: list[int]) -> None:
        is_run, read = isinstance(self._schedule[position], Run), frozenset(reads)
        for buffer in dict.fromkeys(reads + writes):
            life = self._living.get(buffer)
            if life is None or (buffer not in read and self._begins_anew(life, position)):
                if life is not None:
                    self._ended.append(life)
                life = self._living[buffer] = _Life(buffer, [])
                if buffer not in self._throughout:
                    # `zero_grad` drops gradients, so a gradient to which the first micro-batch adds begins there.
                    is_gradient = self._buffers.buffers[buffer].kind is BufferKind.WEIGHT_GRADIENT
                    begins = buffer not in read or (is_gradient and buffer in writes)
                    (self._begins[position] if begins else self._given).append(buffer)
            elif is_run and isinstance(self._schedule[life.touched_by[-1]], Run):
                # Of consecutive kernels only the last counts.
                life.touched_by[-1] = position
                continue
            life.touched_by.append(position)

    def _begins_anew(self, life: _Life, position: int) -> bool:
        """Whether a step that writes a buffer begins a new life: not if just allocated or being offloaded."""
        step = self._schedule[position]
        if isinstance(step, Prefetch) and (life.buffer in self._under_way or (life.buffer, step.extent) in self._away):
            return False
        return not isinstance(self._schedule[life.touched_by[-1]], Allocate)

    def _follow_copies(self, position: int, step: ScheduleStep, buffers: list[int]) -> None:
        match step:
            case Offload(beside=True) if not self._is_beside_a_kernel(position):
                raise self._error(f"{self._name(buffers[0])} is offloaded beside no kernel, expected one before it")
            case Offload(extent=extent) | Prefetch(extent=extent):
                self._away -= {(buffer, extent) for buffer in buffers}
                for place, buffer in enumerate(buffers):
                    self._under_way.setdefault(buffer, {})[extent] = position, place
            case Run():
                self._await_arrivals(buffers)
            case Wait(buffers=what, extent=extent):
                # The memory stream runs in order: a wait for the last copy covers all.
                (start, _), last = max(self._waited(buffer, extent) for buffer in what)
                if extent is None or start > self._waited_for:
                    self._awaited.add((start, last))
                    self._waited_for = start
                if extent is not None and isinstance(self._schedule[start], Offload):
                    self._away |= {(buffer, extent) for buffer in what}
            case _:
                pass

    def _waited(self, buffer: int, extent: range | None) -> tuple[tuple[int, int], int]:
        """Remove the copies of a buffer or extent that are waited for; return the last, and the buffer."""
        copies = self._under_way.get(buffer, {})
        found = [copies.pop(each) for each in list(copies) if extent in (None, each)]
        if not found:
            raise self._error(f"waits for {self._name(buffer)}, which no copy moves")
        if not copies:
            del self._under_way[buffer]
        return max(found), buffer

    def _await_arrivals(self, buffers: list[int]) -> None:
        """Let a kernel wait for the last prefetch of each of its operands."""
        for buffer in buffers if self._under_way else ():
            copies = self._under_way.get(buffer, {})
            starts = [start for start, _ in copies.values() if self._is_fetch(start)]
            if starts:
                self._awaited.add((max(starts), buffer))
                left = {extent: at for extent, at in copies.items() if not self._is_fetch(at[0])}
                self._under_way[buffer] = left
                if not left:
                    del self._under_way[buffer]

    def _is_fetch(self, position: int) -> bool:
        return isinstance(self._schedule[position], Prefetch)

    def _is_beside_a_kernel(self, position: int) -> bool:
        return position > 0 and isinstance(self._schedule[position - 1], Run | Offload | Prefetch)

    def _follow_layer(self, step: ScheduleStep, buffers: list[int]) -> None:
        if isinstance(step, Run | Offload | Prefetch | Allocate):
            layer = step.layer.index, step.phase.is_backward
            if layer != self._layer:
                self._layer, self._of_layer = layer, {}
        if isinstance(step, Release):
            self._of_layer = {each: None for each in self._of_layer if each not in buffers}
        else:
            self._of_layer |= dict.fromkeys(buffers)

    def _check(self, life: _Life) -> None:
        last = self._schedule[life.touched_by[-1]]
        for position, use in pairwise(life.touched_by):
            if isinstance(self._schedule[position], Release):
                raise self._error(
                    f"{self._name(life.buffer)} is used in {self._place(use)} after its release behind "
                    f"{self._place(position)} without a prefetch"
                )
        released = isinstance(last, Wait | Synchronize | Release) and life.buffer not in self._throughout
        for position in life.touched_by:
            step = self._schedule[position]
            if not isinstance(step, Offload) or released:
                continue
            if self._fetched.get((life.buffer, step.copy), -1) < position:
                raise self._error(
                    f"{self._name(life.buffer)} is offloaded in {step.phase.value} of {step.layer.name} and neither "
                    "released nor prefetched after that; expected a Wait for its copy after the last kernel that reads "
                    "it, or a Prefetch before the next"
                )

    def _place(self, position: int) -> str:
        """Return the layer and phase to which a step belongs, or behind which it stands."""
        before = (each for each in reversed(self._schedule[: position + 1]) if isinstance(each, Run))
        return next((f"{each.phase.value} of {each.layer.name}" for each in before), "the beginning")

    def _name(self, buffer: int) -> str:
        return self._buffers.buffers[buffer].name

    def _error(self, what: str) -> PlanError:
        return PlanError(f"{self._label}: {what}")
