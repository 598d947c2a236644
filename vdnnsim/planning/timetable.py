"""Timetables: when chunks of idle buffers are offloaded and prefetched, and how long the iteration then takes.

Chunks are offloaded in the order of their last use before the turn, and prefetched in the order of their first use
after it; the memory stream runs in order. The memory of a chunk is free ("away") from the kernel before which the
compute stream waits for its offload to the one before which its prefetch is issued.
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
    """Bytes that are copied at once, an extent of a buffer or, with None, all of it."""

    wait: IdleInterval
    nbytes: int
    extent: range | None


def to_offload(
    waits: Sequence[IdleInterval], turn: int, nbytes: int | None = None, granule_bytes: int = 1
) -> list[tuple[IdleInterval, int]]:
    """Return the intervals around a turn in the order of their offload, and the bytes of each, `nbytes` in all.

    The last is rounded up to granules.
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
    """Return chunks of intervals that are cut at the needs of kernels, so that these wait for nothing else.

    Kernels before the turn need bytes away, the first offloaded; those behind it, the last prefetched. A granule
    divides the size of all chunks but the last of a buffer.
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
    """Chunks that are offloaded and prefetched around a turn, with the times of their copies."""

    problem: Problem
    turn: int
    chunks: Sequence[Chunk]
    out_s: Callable[[int], float]
    in_s: Callable[[int], float]

    @cached_property
    def returning(self) -> list[Chunk]:
        """The chunks in the order of their prefetches."""
        return sorted(self.chunks, key=lambda each: each.wait.next)

    @cached_property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.chunks)

    @cached_property
    def _sent(self) -> list[int]:
        return list(accumulate((each.nbytes for each in self.chunks), initial=0))

    @cached_property
    def _kept_back(self) -> list[int]:
        """Bytes of the n chunks prefetched last."""
        return list(accumulate((each.nbytes for each in reversed(self.returning)), initial=0))

    def away(self, kernel: int, nbytes: int) -> int | None:
        """Return how many chunks must be away for a kernel that lacks so many bytes; None if too few can.

        Up to the turn these are the first offloaded, after it the last prefetched.
        """
        if nbytes <= 0:
            return 0
        sums = self._sent if kernel <= self.turn else self._kept_back
        count = bisect_left(sums, nbytes)
        return count if count <= self._waiting[kernel] else None

    def away_bytes(self, left: int, to_return: int) -> int:
        """Return the bytes away when so many chunks are offloaded and so many are not yet prefetched."""
        return self._sent[left] + self._kept_back[to_return] - self.nbytes

    @cached_property
    def _waiting(self) -> list[int]:
        """By kernel, how many chunks are idle: the first ones up to the turn, the last ones after it."""
        begins, ends = [each.wait.last for each in self.chunks], [each.wait.next for each in self.returning]
        count = len(self.problem.kernels)
        before = [bisect_left(begins, kernel) for kernel in range(self.turn + 1)]
        # Those whose next use is after the kernel.
        behind = [len(ends) - bisect_left(ends, kernel + 1) for kernel in range(self.turn + 1, count)]
        return before + behind

    @cached_property
    def stages(self) -> list[Stage]:
        """The kernels as stages of the fluid search, with needs in whole chunks."""
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
        """By chunk, the kernel before which its offload is issued."""
        return list(accumulate((each.wait.made + 1 for each in self.chunks), max))

    def timetable(self, options: Sequence[Option]) -> "Timetable":
        """Return the timetable for some algorithms; where all chunks are too little, they are all away."""
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
    """A movement with its schedule.

    Attributes:
        released: by kernel, how many offloads have been waited for before it.
        fetched: by kernel, how many prefetches have been issued before it.
    """

    movement: Movement
    options: tuple[Option, ...]
    released: tuple[int, ...]
    fetched: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """Time of the iteration, the host aside."""
        return sum(self.stalls) + sum(each.seconds for each in self.options)

    @property
    def all_fetched(self) -> int:
        """The kernel before which the last prefetch has been issued; the first without chunks."""
        return bisect_left(self.fetched, len(self.movement.chunks))

    @property
    def free_bytes(self) -> list[int]:
        """By kernel, the free memory beside it; below 0 where some is lacking."""
        move, count = self.movement, len(self.movement.chunks)
        free = []
        for number, (kernel, option) in enumerate(zip(move.problem.kernels, self.options, strict=True)):
            away = move.away_bytes(self.released[number], count - self.fetched[number])
            free.append(away - kernel.away_bytes(option, move.problem.capacity_bytes))
        return free

    @property
    def decisions(self) -> Hashable:
        """A key of the plan of an order: equal keys give equal plans."""
        move = self.movement
        # Only copies of states depend on free memory.
        free = tuple(self.free_bytes) if move.problem.residencies else ()
        return tuple(move.chunks), self.options, self.released, self.fetched, free

    @property
    def stalls(self) -> list[float]:
        """By kernel, the seconds that it waits for copies."""
        return self._played[0]

    @property
    def hindered(self) -> frozenset[int]:
        """The kernels that finer chunks would help.

        Up to the turn those that wait for offloads, after it those beside which the link is idle before the last
        prefetch.
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
