"""What a planner decides about: the kernels of an iteration in their order, what each must find, and what may be away.

Between two kernels that touch it, a buffer waits; while it waits it may be on the host. What is held throughout (W, dW,
the states of an optimizer) never waits here: schedules that move them are of another class (`moves_resident`). States
that are given on the host stay on the GPU for the update alone, from the first kernel that touches them to the last.

A problem supposes nothing of the order of kernels. In training it rises to a moment at which most waits and falls
again, and that backward reverses forward is what makes plans good, but no bound rests on it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lifetimes import lifetimes
from vdnnsim.plans.schedule import Run, Schedule, by_operation

RESIDENT: Final = (BufferKind.WEIGHTS, BufferKind.WEIGHT_GRADIENT, BufferKind.OPTIMIZER_STATE)


@dataclass(frozen=True, slots=True)
class Option:
    """One algorithm of a kernel.

    Attributes:
        kernel: what the phase of the layer costs by it.
        seconds, workspace_bytes: of this operation of the phase; the temporary memory that any algorithm takes
            included.
    """

    kernel: KernelCost
    seconds: float
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operation in its place.

    Attributes:
        options: the fastest first, each with less workspace than the one before.
        held_bytes: what must be on the GPU while it runs, whatever else is away; its workspace aside.
        waiting_bytes: what lives then and it does not touch, and so may be away.
        content_bytes: of that, what copies move; the rest rounds it up to granules.
        fresh_bytes: what of that the kernel just before it has made, which could leave in no time but that of a stall.
        sendable_bytes: of what waits behind it, what has been made when it starts.
    """

    run: Run
    options: tuple[Option, ...]
    held_bytes: int
    waiting_bytes: int
    content_bytes: int
    fresh_bytes: int
    sendable_bytes: int

    @property
    def padding_bytes(self) -> int:
        """Return what is given back with what waits, and never copied."""
        return self.waiting_bytes - self.content_bytes

    @property
    def returnable_bytes(self) -> int:
        """Return what was needed away before it, at the most, and can come back only after it."""
        return self.content_bytes - self.fresh_bytes

    def away_bytes(self, option: Option, capacity_bytes: int) -> int:
        """Return how much must be away while it runs by an algorithm; below 0 what could be there beside."""
        return self.held_bytes + self.waiting_bytes + option.workspace_bytes - capacity_bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """A time for which a buffer waits with a content that is wanted after it.

    Attributes:
        nbytes: of the content, granules aside.
        made: the kernel that wrote the content, by position; -1 where an iteration begins with it.
        last, next: the kernels that touch it before and after, by position; -1 as above.
    """

    buffer: int
    nbytes: int
    made: int
    last: int
    next: int


class Stay(NamedTuple):
    """For which kernels a buffer that is given on the host is on the GPU.

    Attributes:
        first, last: the kernels that touch it first and last, by position.
        changes: whether one of them writes it, so that it must leave again.
    """

    buffer: int
    nbytes: int
    first: int
    last: int
    changes: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """An iteration on a machine.

    An iteration begins with what is given on the GPU or on the host, and ends with what is held throughout there.

    Attributes:
        waits: every wait of every buffer that a kernel runs in, in the order in which they begin.
        stays: those of states that are given on the host, in the order in which they begin.
        capacity_bytes: device memory for buffers.
        granule_bytes: in which they take it.
    """

    workload: Workload
    kernels: tuple[Kernel, ...]
    waits: tuple[Wait, ...]
    stays: tuple[Stay, ...]
    capacity_bytes: int
    granule_bytes: int

    @property
    def fastest_s(self) -> float:
        """Return what the kernels take by their fastest algorithms, nothing beside."""
        return sum(each.options[0].seconds for each in self.kernels)

    @property
    def fullest(self) -> int:
        """Return the position of the kernel beside which most waits that could have left without a stall."""
        return max(range(len(self.kernels)), key=lambda at: self.kernels[at].returnable_bytes)

    def around(self, turn: int) -> "Problem":
        """Return the problem in which only what waits over a kernel may be away, and all else is held."""
        count, granule = len(self.kernels), self.granule_bytes
        waits = tuple(each for each in self.waits if each.last < turn < each.next)
        spans = [(each.last + 1, each.next) for each in waits]
        waiting = sums_of(
            [(*span, round_up(each.nbytes, granule)) for span, each in zip(spans, waits, strict=True)], count
        )
        content = sums_of([(*span, each.nbytes) for span, each in zip(spans, waits, strict=True)], count)
        sendable = sums_of([(each.made + 1, each.next - 1, each.nbytes) for each in waits], count)
        kernels = tuple(
            replace(
                each,
                held_bytes=each.held_bytes + each.waiting_bytes - waiting[at],
                waiting_bytes=waiting[at],
                content_bytes=content[at],
                fresh_bytes=0,
                sendable_bytes=sendable[at],
            )
            for at, each in enumerate(self.kernels)
        )
        return replace(self, kernels=kernels, waits=waits)


def problem_of(
    schedule: Schedule,
    workload: Workload,
    costs: CostTable,
    capacity_bytes: int,
    granule_bytes: int = 1,
    *,
    moves_resident: bool = False,
    states_on_host: bool = False,
) -> Problem:
    """Return what is to be decided about kernels in an order.

    Args:
        schedule: the runs of an iteration, recomputations among them; of a batch in parts those of one part.
        workload: what is trained.
        costs: of its kernels.
        capacity_bytes: device memory for buffers.
        granule_bytes: in which a buffer takes memory.
        moves_resident: whether what is held throughout may be away too, while no kernel touches it.
        states_on_host: whether the states of the optimizer are given on the host.
    """
    runs = [each for each in by_operation(schedule, workload.step) if isinstance(each, Run)]
    buffers = IterationBuffers(workload, states_on_host=states_on_host)
    survey = _Survey(runs, buffers, granule_bytes, moves_resident=moves_resident)
    figures = zip(runs, survey.held, survey.waiting, survey.content, survey.fresh, survey.sendable, strict=True)
    kernels = tuple(
        Kernel(run, _options(costs.options(run.layer.index, run.phase), run, workload, granule_bytes), *bytes_of)
        for run, *bytes_of in figures
    )
    return Problem(workload, kernels, tuple(survey.waits), tuple(survey.stays), capacity_bytes, granule_bytes)


def _options(costs: Sequence[KernelCost], run: Run, workload: Workload, granule_bytes: int) -> tuple[Option, ...]:
    own_bytes = run.of(workload.step).temporary_bytes
    options: list[Option] = []
    found = [Option(each, each.of(run.operation or 0).seconds, 0) for each in costs]
    for option in sorted(found, key=lambda each: each.seconds):
        nbytes = round_up(own_bytes + option.kernel.of(run.operation or 0).workspace_bytes, granule_bytes)
        if not options or nbytes < options[-1].workspace_bytes:
            options.append(Option(option.kernel, option.seconds, nbytes))
    return tuple(options)


class _Survey:
    """Who is touched when: by kernel the bytes that must be there, those that may be away, and what moves when."""

    def __init__(
        self, runs: Sequence[Run], buffers: IterationBuffers, granule_bytes: int, *, moves_resident: bool
    ) -> None:
        self._buffers = buffers
        self._granule_bytes = granule_bytes
        self._moves_resident = moves_resident
        self._count = count = len(runs)
        self._held: list[Span] = []
        self._waiting: list[Span] = []
        self.waits: list[Wait] = []
        self.stays: list[Stay] = []
        self._read: dict[int, list[int]] = defaultdict(list)
        self._written: dict[int, list[int]] = defaultdict(list)
        for position, run in enumerate(runs):
            reads, writes = buffers.touched(run)
            for each in dict.fromkeys(reads):
                self._read[each].append(position)
            for each in dict.fromkeys(writes):
                self._written[each].append(position)
        for life in self._lives(runs):
            self._enter(*life)
        self.waits.sort(key=lambda each: (each.last, -each.next))
        self.stays.sort(key=lambda each: (each.first, each.last))
        self.held, self.waiting = sums_of(self._held, count), sums_of(self._waiting, count)
        self.content = sums_of([(each.last + 1, each.next, each.nbytes) for each in self.waits], count)
        made_just_before = (each for each in self.waits if -1 < each.made == each.last)
        self.fresh = sums_of([(each.made + 1, each.made + 2, each.nbytes) for each in made_just_before], count)
        # A content that waits several times leaves once.
        contents = {(each.buffer, each.made): each for each in self.waits}
        self.sendable = sums_of([(each.made + 1, each.next - 1, each.nbytes) for each in contents.values()], count)

    def _lives(self, runs: Sequence[Run]) -> Iterator[tuple[int, int, int]]:
        """Yield each buffer, the kernel that makes it, the last that touches it; -1 and the end for no kernel."""
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
        if found.given_on_host:
            touched = sorted({*self._read[buffer], *self._written[buffer]})
            self._held.append((touched[0], touched[-1] + 1, size))
            self.stays.append(Stay(buffer, found.nbytes, touched[0], touched[-1], bool(self._written[buffer])))
            return
        if not self._moves_resident and (last == self._count or found.kind in RESIDENT):
            self._held.append((max(0, first), last + 1, size))
            return
        read = [each for each in self._read[buffer] if first <= each <= last]
        written = [each for each in self._written[buffer] if first <= each <= last]
        touched = sorted({*read, *written})
        self._held += ((each, each + 1, size) for each in touched)
        ends = [*([-1] if first < 0 else []), *touched, *([last] if last == self._count and found.given else [])]
        for before, after in pairwise(ends):
            # What is written anew after a wait, as a weight gradient that has memory throughout, holds nothing in it.
            if after - before > 1 and (after == self._count or after in read):
                self._waiting.append((before + 1, after, size))
                made = max((each for each in written if each <= before), default=-1)
                self.waits.append(Wait(buffer, found.nbytes, made, before, after))


Span = tuple[int, int, int]
"""Bytes from one kernel to another, the latter not included: the two, and the bytes."""


def sums_of(spans: Iterable[Span], count: int) -> list[int]:
    """Return by kernel the bytes of the spans that it is in."""
    changes = [0] * (count + 2)
    for start, stop, nbytes in spans:
        changes[start] += nbytes
        changes[max(start, stop)] -= nbytes
    return list(accumulate(changes))[:count]
