"""Uses of buffers in an order of kernels: bytes held by each kernel, idle intervals between uses, bytes on the host."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lifetimes import lifetimes
from vdnnsim.plans.schedule import Run

RESIDENT: Final = (BufferKind.WEIGHTS, BufferKind.WEIGHT_GRADIENT, BufferKind.OPTIMIZER_STATE)


@dataclass(frozen=True, slots=True)
class IdleInterval:
    """The kernels between two uses of a buffer, during which it may be on the host.

    Attributes:
        made: position of the kernel that wrote the content; -1 if it is given.
        last, next: positions of the kernels that use it before and after; -1 as above.
    """

    buffer: int
    nbytes: int
    made: int
    last: int
    next: int


class Residency(NamedTuple):
    """The kernels during which a buffer is on the GPU that is on the host before or after them.

    Attributes:
        first, last: positions of the kernels that use it first and last.
        prefetched: whether it has content before them.
        offloaded: whether they write content that is used later.
    """

    buffer: int
    nbytes: int
    first: int
    last: int
    prefetched: bool
    offloaded: bool


class BufferUses:
    """By kernel the bytes that must be on the GPU, those that may be on the host, and those that can be copied."""

    def __init__(self, runs: Sequence[Run], buffers: IterationBuffers, granule_bytes: int, rounds: int) -> None:
        self._rounds = rounds
        self._buffers = buffers
        self._granule_bytes = granule_bytes
        self._update = next((at for at, run in enumerate(runs) if run.phase is Phase.UPDATE), len(runs))
        self._count = count = len(runs)
        self._held: list[Span] = []
        self._idle: list[Span] = []
        self._parked: list[Span] = []
        self.idle: list[IdleInterval] = []
        self.residencies: list[Residency] = []
        # By buffer the kernels that write it, and ranges of consecutive kernels that use it.
        self._written: dict[int, list[int]] = defaultdict(list)
        self._touched: dict[int, list[list[int]]] = defaultdict(list)
        for position, run in enumerate(runs):
            reads, writes = buffers.touched(run)
            for each in dict.fromkeys(writes):
                self._written[each].append(position)
            for each in dict.fromkeys((*reads, *writes)):
                rows = self._touched[each]
                if rows and rows[-1][1] == position - 1:
                    rows[-1][1] = position
                else:
                    rows.append([position, position])
        for life in self._lives(runs):
            if life[0] not in buffers.on_host:
                self._enter(*life)
        for each in sorted(buffers.on_host & self._touched.keys()):
            self._enter_residencies(each)
        self.idle.sort(key=lambda each: (each.last, -each.next))
        self.residencies.sort(key=lambda each: (each.first, each.last, each.buffer))
        self.held, self.waiting, self.parked = (sums_of(each, count) for each in (self._held, self._idle, self._parked))
        self.content = sums_of([(each.last + 1, each.next, each.nbytes) for each in self.idle], count)
        made_just_before = (each for each in self.idle if -1 < each.made == each.last)
        self.fresh = sums_of([(each.made + 1, each.made + 2, each.nbytes) for each in made_just_before], count)
        # A content with several idle intervals is offloaded once.
        contents = {(each.buffer, each.made): each for each in self.idle}
        self.sendable = sums_of([(each.made + 1, each.next - 1, each.nbytes) for each in contents.values()], count)

    def _lives(self, runs: Sequence[Run]) -> Iterator[tuple[int, int, int]]:
        """Yield each buffer, the kernel that first writes it, and the last that uses it; -1 and the end for none."""
        throughout = [buffer for buffer, _ in self._buffers.held(with_statistics=False)]
        lived = lifetimes(runs, self._buffers, frozenset(throughout))
        living = dict.fromkeys(lived.given, -1)
        for position in range(len(runs)):
            living |= dict.fromkeys(lived.begins[position], position)
            for each in lived.ends[position]:
                yield each, living.pop(each), position
        for each in throughout:
            yield each, -1, len(runs)

    def _enter(self, buffer: int, first: int, last: int) -> None:
        found = self._buffers.buffers[buffer]
        size = round_up(found.nbytes, self._granule_bytes)
        if last == self._count or found.kind in RESIDENT:
            # What the first micro-batch makes, the others add to.
            is_there = found.given and self._rounds > 1
            self._held.append((0 if is_there else max(0, first), last + 1, size))
            return
        touched = [(max(first, begin), min(last, end)) for begin, end in self._touched[buffer]]
        rows = [(begin, end) for begin, end in touched if begin <= end]
        self._held += ((begin, end + 1, size) for begin, end in rows)
        for (_, before), (after, _) in pairwise([*([(-1, -1)] if first < 0 else []), *rows]):
            if self._is_read_by_the_next(before, after):
                self._held.append((before + 1, after, size))
            elif after - before > 1:
                self._idle.append((before + 1, after, size))
                made = max((each for each in self._written[buffer] if first <= each <= before), default=-1)
                self.idle.append(IdleInterval(buffer, found.nbytes, made, before, after))

    def _is_read_by_the_next(self, before: int, after: int) -> bool:
        """Whether the next micro-batch begins between two uses; the update follows only the last."""
        return self._rounds > 1 and before < self._update <= after

    def _enter_residencies(self, buffer: int) -> None:
        """Enter a buffer that is on the host between backward and update, or except during the update."""
        found = self._buffers.buffers[buffer]
        size = round_up(found.nbytes, self._granule_bytes)
        touched = [at for begin, end in self._touched[buffer] for at in range(begin, end + 1)]
        before, behind = ([each for each in touched if (each < self._update) is early] for early in (True, False))
        if before and before[-1] + 1 == behind[0]:
            stays = [(before[0], behind[-1], False, False)]
        elif before:
            stays = [(before[0], before[-1], False, True), (behind[0], behind[-1], True, False)]
            self._parked.append((before[-1] + 1, behind[0], found.nbytes))
        else:
            stays = [(behind[0], behind[-1], True, bool(self._written[buffer]))]
            self._parked += [(0, behind[0], found.nbytes), (behind[-1] + 1, self._count, found.nbytes)]
        self.residencies += (Residency(buffer, found.nbytes, *each) for each in stays)
        self._held += ((first, last + 1, size) for first, last, *_ in stays)


Span = tuple[int, int, int]
"""First kernel, kernel after the last, and bytes."""


def sums_of(spans: Iterable[Span], count: int) -> list[int]:
    """Return by kernel the sum of the bytes of its spans."""
    changes = [0] * (count + 2)
    for start, stop, nbytes in spans:
        changes[start] += nbytes
        changes[max(start, stop)] -= nbytes
    return list(accumulate(changes))[:count]
