"""Timetables: when chunks of idle buffers are offloaded and prefetched, and how long the iteration then takes.

Chunks leave in the order in which their buffers are last touched before the turn, and come back in the order in which
they are first touched behind it; both ways the memory stream runs in order. A chunk is away, as far as memory goes,
from the kernel before which the compute stream waits for its copy to the one before which its copy back is issued.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from vdnnsim.memory.requests import round_up
from vdnnsim.planning.buffer_uses import IdleInterval
from vdnnsim.planning.fluid_bound import Need, Stage
from vdnnsim.planning.problem import Option, Problem


class Chunk(NamedTuple):
    """Bytes that leave as one.

    Attributes:
        extent: which of the buffer; None for all of it.
    """

    wait: IdleInterval
    nbytes: int
    extent: range | None


def leaving(
    waits: Sequence[IdleInterval], turn: int, nbytes: int | None = None, granule_bytes: int = 1
) -> list[tuple[IdleInterval, int]]:
    """Return who waits over a turn in the order in which they can leave, and how much of each: all of it, or `nbytes`.

    Of the last of them whole granules leave.
    """
    found: list[tuple[IdleInterval, int]] = []
    missing = sum(each.nbytes for each in waits) if nbytes is None else nbytes
    over = (each for each in waits if each.last < turn < each.next and each.nbytes)
    for wait in sorted(over, key=lambda each: (each.last, -each.next)):
        if missing <= 0:
            break
        part = min(wait.nbytes, round_up(missing, granule_bytes))
        found.append((wait, part))
        missing -= part
    return found


def in_pieces(moved: Sequence[tuple[IdleInterval, int]], chunk_bytes: int) -> list[Chunk]:
    """Return chunks of at most so many bytes."""
    return [each for wait, nbytes in moved for each in _cut(wait, nbytes, range(chunk_bytes, nbytes, chunk_bytes))]


def at_needs(
    moved: Sequence[tuple[IdleInterval, int]], before: Iterable[int], behind: Iterable[int], granule_bytes: int
) -> list[Chunk]:
    """Return chunks that end where a kernel needs no more to be away, so that it waits for nothing else.

    Args:
        moved: who leaves, in order, and how much of it.
        before: how many bytes must be away for kernels before the turn: the first that leave.
        behind: how many for kernels behind it: the last that come back.
        granule_bytes: of which the size of a chunk is a multiple, but for the last of a buffer.
    """
    cuts: dict[IdleInterval, set[int]] = {wait: set() for wait, _ in moved}
    needs = sorted(set(before))
    gone = 0
    for wait, nbytes in moved:
        inside = needs[bisect_right(needs, gone) : bisect_left(needs, gone + nbytes)]
        cuts[wait] |= {round_up(each - gone, granule_bytes) for each in inside}
        gone += nbytes
    needs = sorted(set(behind))
    gone = 0
    for wait, nbytes in sorted(moved, key=lambda each: each[0].next)[::-1]:
        inside = needs[bisect_right(needs, gone) : bisect_left(needs, gone + nbytes)]
        cuts[wait] |= {(nbytes - each + gone) // granule_bytes * granule_bytes for each in inside}
        gone += nbytes
    return [each for wait, nbytes in moved for each in _cut(wait, nbytes, sorted(cuts[wait]))]


def _cut(wait: IdleInterval, nbytes: int, cuts: Iterable[int]) -> list[Chunk]:
    ends = [0, *(each for each in cuts if 0 < each < nbytes), nbytes]
    if len(ends) == 2 and nbytes == wait.nbytes:
        return [Chunk(wait, nbytes, None)]
    return [Chunk(wait, end - start, range(start, end)) for start, end in pairwise(ends)]


@dataclass(frozen=True)
class Movement:
    """Chunks that leave and come back around a turn, with the seconds that their copies take."""

    problem: Problem
    turn: int
    chunks: Sequence[Chunk]
    out_s: Callable[[int], float]
    in_s: Callable[[int], float]

    @cached_property
    def returning(self) -> list[Chunk]:
        """The chunks in the order in which they come back."""
        return sorted(self.chunks, key=lambda each: each.wait.next)

    @cached_property
    def nbytes(self) -> int:
        """All that moves."""
        return sum(each.nbytes for each in self.chunks)

    @cached_property
    def _sent(self) -> list[int]:
        return list(accumulate((each.nbytes for each in self.chunks), initial=0))

    @cached_property
    def _kept_back(self) -> list[int]:
        """By count, the bytes of so many chunks that come back last."""
        return list(accumulate((each.nbytes for each in reversed(self.returning)), initial=0))

    def away(self, kernel: int, nbytes: int) -> int | None:
        """Return how many chunks must be away for a kernel that lacks so many bytes; None if too few can.

        Before the turn of those that leave first, from the turn on of those that come back last.
        """
        if nbytes <= 0:
            return 0
        sums = self._sent if kernel <= self.turn else self._kept_back
        count = bisect_left(sums, nbytes)
        return count if count <= self._waiting[kernel] else None

    def away_bytes(self, left: int, to_return: int) -> int:
        """Return the bytes that are away when so many chunks have left and so many have yet to come back."""
        return self._sent[left] + self._kept_back[to_return] - self.nbytes

    @cached_property
    def _waiting(self) -> list[int]:
        """By kernel, how many chunks wait then: from the first on before the turn, from the last on behind it."""
        begins, ends = [each.wait.last for each in self.chunks], [each.wait.next for each in self.returning]
        count = len(self.problem.kernels)
        before = [bisect_left(begins, kernel) for kernel in range(self.turn + 1)]
        # Those whose next touch is behind the kernel, and not that kernel.
        behind = [len(ends) - bisect_left(ends, kernel + 1) for kernel in range(self.turn + 1, count)]
        return before + behind

    @cached_property
    def stages(self) -> list[Stage]:
        """The kernels as the search of `fluid` sees them, what must be away in whole chunks."""
        problem, found = self.problem, []
        for number, kernel in enumerate(problem.kernels):
            needs = []
            for option in kernel.options:
                count = self.away(number, kernel.away_bytes(option, problem.capacity_bytes))
                if count is None:
                    continue
                sent = self._sent[count] if number <= self.turn else 0
                back = self._kept_back[count] if number > self.turn else 0
                if number == self.turn:
                    sent = back = self.nbytes
                needs.append(Need(option, option.seconds, sent, back))
            sendable = self._sent[bisect_right(self.issued, number)]
            back = self._kept_back[self._waiting[number]] if number > self.turn else self.nbytes
            found.append(Stage(tuple(needs), sendable, back))
        return found

    @cached_property
    def issued(self) -> list[int]:
        """By chunk in the order of leaving, the kernel before which its copy is issued."""
        return list(accumulate((each.wait.made + 1 for each in self.chunks), max))

    def timetable(self, options: Sequence[Option]) -> "Timetable":
        """Return what leaves and comes back when, for kernels by some algorithms; where that is too little, all."""
        count, away = len(self.chunks), []
        for number, (kernel, option) in enumerate(zip(self.problem.kernels, options, strict=True)):
            enough = self.away(number, kernel.away_bytes(option, self.problem.capacity_bytes))
            away.append(self._waiting[number] if enough is None else enough)
        released = [*accumulate(away[: self.turn], max), *[count] * (len(options) - self.turn)]
        kept_back = [*accumulate(reversed(away[self.turn + 1 :]), max)][::-1]
        fetched = [*[0] * (self.turn + 1), *(count - each for each in kept_back)]
        return Timetable(self, tuple(options), tuple(released), tuple(fetched))


@dataclass(frozen=True)
class Timetable:
    """A movement with its moments.

    Attributes:
        released: by kernel, how many of the chunks have left before it.
        fetched: by kernel, of how many in the order of return the copies have been issued before it.
    """

    movement: Movement
    options: tuple[Option, ...]
    released: tuple[int, ...]
    fetched: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """What the iteration takes, the host aside."""
        return sum(self.stalls) + sum(each.seconds for each in self.options)

    @property
    def all_fetched(self) -> int:
        """The kernel before which the last copy back has been issued; the first where nothing is away."""
        return bisect_left(self.fetched, len(self.movement.chunks))

    @property
    def free_bytes(self) -> list[int]:
        """By kernel, the memory that is left beside it; below 0 where some is lacking."""
        move, count = self.movement, len(self.movement.chunks)
        free = []
        for number, (kernel, option) in enumerate(zip(move.problem.kernels, self.options, strict=True)):
            away = move.away_bytes(self.released[number], count - self.fetched[number])
            free.append(away - kernel.away_bytes(option, move.problem.capacity_bytes))
        return free

    @property
    def decisions(self) -> Hashable:
        """What of kernels in an order makes a plan: plans are equal where this is."""
        move = self.movement
        # Only states that are on the host look at what memory is free.
        free = tuple(self.free_bytes) if move.problem.residencies else ()
        return tuple(move.chunks), self.options, self.released, self.fetched, free

    @property
    def stalls(self) -> list[float]:
        """By kernel, for how many seconds it waits for copies."""
        return self._played[0]

    @property
    def hindered(self) -> frozenset[int]:
        """The kernels whose needs finer chunks would serve.

        Before the turn those that wait for what leaves, behind it those beside which nothing comes back, though
        something is still to come.
        """
        return self._played[1]

    @cached_property
    def _played(self) -> tuple[list[float], frozenset[int]]:
        move = self.movement
        now = link = 0.0
        done: list[float] = []
        arrived: dict[int, float] = {}
        stalls, ends, hindered = list[float](), list[float](), set[int]()
        back = 0
        for number, option in enumerate(self.options):
            ready = now
            while len(done) < len(move.chunks) and move.issued[len(done)] <= number:
                link = max(link, now) + move.out_s(move.chunks[len(done)].nbytes)
                done.append(link)
            if self.released[number] and number <= move.turn:
                now = max(now, done[self.released[number] - 1])
                if now > ready:
                    hindered.add(number)
            for chunk in move.returning[back : self.fetched[number]]:
                idle = bisect_right(ends, link)
                hindered.update(range(max(idle, move.turn), number))
                link = max(link, now) + move.in_s(chunk.nbytes)
                arrived[chunk.wait.next] = link
            back = max(back, self.fetched[number])
            now = max(now, arrived.get(number, 0.0))
            stalls.append(now - ready)
            now += option.seconds
            ends.append(now)
        return stalls, frozenset(hindered)
