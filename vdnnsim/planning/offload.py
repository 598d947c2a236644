"""The offload search: which chunks to offload, and the algorithm of each kernel, for the shortest iteration that fits.

The fluid optimum gives the bytes that must be on the host ("away") for each kernel, and the turn. The buffers that are
idle first are offloaded first, as they are idle longest. The same two searches then run with needs rounded up to
chunks. Chunks cut at the needs of the fluid optimum lose next to nothing, chunks of a given size the rounding.

Whole buffers may fill a need badly: others are then exchanged for them, one after the other, as long as the iteration
gets shorter and effort is left. With high latency whole buffers may also be better than cut ones, so they are tried
where cuts are not good enough.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from typing import Final, Protocol, TypeVar

from vdnnsim.planning.buffer_uses import IdleInterval
from vdnnsim.planning.effort import TIMED, Effort
from vdnnsim.planning.fluid_bound import TOLERANCE, Links, Optimum, fastest_around
from vdnnsim.planning.problem import Option, Problem
from vdnnsim.planning.timetable import Chunk, Movement, Timetable, at_needs, in_pieces, to_offload

WHOLE: Final = 0
"""Chunk size for whole buffers."""
_GAIN: Final = 1e-5
"""Least gain of an exchange, as a fraction of the iteration."""
MOST_CUTS: Final = 5
"""Rounds of cuts for kernels that still wait."""
MORE_BUFFERS: Final = 4
"""Whole buffers beyond the necessary ones that are tried."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Times of copies by bytes, out and in, and the best rates."""

    out_s: Callable[[int], float]
    in_s: Callable[[int], float]
    best: Links


def all_away(problem: Problem, copies: Copies, host_bytes: int, pinned_bytes: Callable[[int], int]) -> Timetable:
    """Return the timetable that offloads all it can, with the least workspace of every kernel.

    A copy takes `pinned_bytes` of the host.
    """
    turn, nothing = problem.fullest, replace(problem, capacity_bytes=0)
    chunks = list[Chunk]()
    for wait, nbytes in to_offload(problem.idle, turn):
        if (taken_bytes := pinned_bytes(nbytes)) <= host_bytes:
            chunks.append(Chunk(wait, nbytes, None))
            host_bytes -= taken_bytes
    movement = Movement(nothing, turn, chunks, copies.out_s, copies.in_s)
    return movement.timetable([each.options[-1] for each in problem.kernels])


class _Timed(Protocol):
    @property
    def seconds(self) -> float: ...


Timed = TypeVar("Timed", bound=_Timed)


def faster(one: Timed | None, other: Timed | None) -> Timed | None:
    """Return the faster of two, or the one that is not None."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda each: each.seconds)


@dataclass
class OffloadSearch:
    """A problem whose fluid optimum is known; memory can be released in granules.

    Attributes:
        near: distance to the optimum, as a fraction, that is good enough; infinite for the first timetable found.
    """

    problem: Problem
    optimum: Optimum
    copies: Copies
    granule_bytes: int
    effort: Effort
    near: float = TOLERANCE

    def best(self, chunk_bytes: int | None) -> Timetable | None:
        """Return the fastest timetable found, or None where none fits.

        A copy moves at most `chunk_bytes`; None for the best, `WHOLE` for whole buffers.
        """
        if not self.optimum.away_bytes:
            return self._movement((), self.optimum.turn).timetable(self.optimum.options)
        found: Timetable | None = None
        for chunks_bytes in (None, WHOLE) if chunk_bytes is None else (chunk_bytes,):
            for turn in self._turns():
                for each in [self._cut(turn)] if chunks_bytes is None else self._rounded(turn, chunks_bytes):
                    found = faster(found, each)
                    if found and self._is_enough(found):
                        return found
        for turn in self._turns() if found is None else ():
            found = faster(found, self._late(turn))
        return self._exchanged(found) if chunk_bytes == WHOLE and found else found

    def _late(self, turn: int) -> Timetable | None:
        """Return a timetable that offloads whole buffers which return late, too.

        Those that are idle first, as many as the turn needs, may be back before a kernel that lacks memory.
        """
        kernels, options = self.problem.kernels, self.optimum.options
        needs = [each.away_bytes(one, self.problem.capacity_bytes) for each, one in zip(kernels, options, strict=True)]
        moved = {wait for wait, _ in to_offload(self.problem.idle, turn, max(needs[: turn + 1]))}
        everyone = [wait for wait, _ in to_offload(self.problem.idle, turn)]
        returning = sorted(everyone, key=lambda each: each.next)
        away = 0
        left = list[IdleInterval]()
        for at in range(len(kernels) - 1, turn, -1):
            while returning and returning[-1].next > at:
                wait = returning.pop()
                away += wait.nbytes if wait in moved else 0
                left += [] if wait in moved else [wait]
            while away < needs[at] and left:
                wait = left.pop()
                moved.add(wait)
                away += wait.nbytes
        return self._timetable([Chunk(each, each.nbytes, None) for each in everyone if each in moved], turn)

    def _rounded(self, turn: int, chunk_bytes: int) -> Iterator[Timetable | None]:
        choices = self._choices(turn, self.optimum.away_bytes, chunk_bytes)
        return (self._timetable(chunks, turn) for chunks in choices)

    def movements(self, options: Sequence[Option], chunk_bytes: int) -> Iterator[Movement]:
        """Yield movements with as many bytes as kernels need by some algorithms, and some more.

        A copy moves at most `chunk_bytes`; `WHOLE` for whole buffers.
        """
        kernels = zip(self.problem.kernels, options, strict=True)
        away = max(0, *(kernel.away_bytes(each, self.problem.capacity_bytes) for kernel, each in kernels))
        for turn in self._turns():
            for chunks in self._choices(turn, away, chunk_bytes):
                yield self._movement(chunks, turn)

    def _turns(self) -> list[int]:
        """Return candidates for the turn: that of the fluid optimum, and the kernel with most idle bytes."""
        return list(dict.fromkeys((self.optimum.turn, self.problem.fullest)))

    def _choices(self, turn: int, away: int, chunk_bytes: int) -> Iterator[list[Chunk]]:
        """Yield chunks of so many bytes, and some more."""
        waits = self.problem.idle
        if chunk_bytes == WHOLE:
            everyone = [Chunk(wait, nbytes, None) for wait, nbytes in to_offload(waits, turn)]
            least = len(to_offload(waits, turn, away))
            yield from (everyone[:count] for count in range(least, min(least + MORE_BUFFERS, len(everyone)) + 1))
        else:
            for more in range(3):
                yield in_pieces(to_offload(waits, turn, away + more * chunk_bytes), chunk_bytes)

    def _cut(self, turn: int) -> Timetable | None:
        """Return the fastest timetable with chunks cut at the needs of all kernels, or only of those that wait."""
        found = self._timetable(self._chunks(turn, self.optimum.options, range(len(self.problem.kernels))), turn)
        options = found.options if found else self.optimum.options
        for alone in (False, True):
            served: frozenset[int] = frozenset()
            for _ in range(MOST_CUTS):
                if found and self._is_enough(found):
                    return found
                # Because of latency few cuts may be better than many.
                other = self._timetable(self._chunks(turn, options, served, alone=alone), turn)
                if other is None:
                    break
                found, served = faster(found, other), served | other.hindered
        return found

    def _chunks(
        self, turn: int, options: Sequence[Option], served: Collection[int], *, alone: bool = False
    ) -> list[Chunk]:
        """Return chunks for the needs of kernels by some algorithms, cut at those of `served` kernels.

        What one before it needed away is gone already, and what one behind it needs away is not back yet. Cuts at what
        each needs `alone` split more copies, so that kernels by other algorithms may wait for less of them.
        """
        kernels = zip(self.problem.kernels, options, strict=True)
        needs = [kernel.away_bytes(each, self.problem.capacity_bytes) for kernel, each in kernels]
        moved = to_offload(self.problem.idle, turn, max(needs), self.granule_bytes)
        gone, kept_back = [*accumulate(needs, max)], [*accumulate(reversed(needs), max)][::-1]
        if alone:
            gone = kept_back = needs
        before = (gone[at] for at in served if at <= turn)
        behind = (kept_back[at] for at in served if at >= turn)
        return at_needs(moved, before, behind, self.granule_bytes)

    def _movement(self, chunks: Sequence[Chunk], turn: int) -> Movement:
        return Movement(self.problem, turn, chunks, self.copies.out_s, self.copies.in_s)

    def _timetable(self, chunks: Sequence[Chunk], turn: int) -> Timetable | None:
        self.effort.spend(TIMED * len(self.problem.kernels))
        movement = self._movement(chunks, turn)
        out_s = sum(self.copies.out_s(each.nbytes) for each in chunks)
        in_s = sum(self.copies.in_s(each.nbytes) for each in chunks)
        links = Links(movement.nbytes / out_s, movement.nbytes / in_s) if chunks else self.copies.best
        options = fastest_around(movement.stages, links, turn)
        return movement.timetable(options) if options else None

    def _is_enough(self, found: Timetable) -> bool:
        return found.seconds <= self.optimum.seconds * (1 + self.near) or self.effort.is_over

    def _exchanged(self, found: Timetable) -> Timetable:
        """Return a local optimum under removing, adding and exchanging whole buffers."""
        turn = found.movement.turn
        everyone = [wait for wait, _ in to_offload(self.problem.idle, turn)]
        improved = True
        while improved and not self._is_enough(found):
            improved = False
            neighbours = _neighbours({each.wait for each in found.movement.chunks}, everyone)
            for chosen in takewhile(lambda _: not self.effort.is_over, neighbours):
                chunks = [Chunk(each, each.nbytes, None) for each in everyone if each in chosen]
                other = self._timetable(chunks, turn)
                if other and other.seconds < found.seconds * (1 - _GAIN):
                    found, improved = other, True
                    break
        return found


def _neighbours(chosen: set[IdleInterval], everyone: Sequence[IdleInterval]) -> Iterator[set[IdleInterval]]:
    # First what copies fewest bytes, as effort ends most of these searches.
    by_size = sorted(everyone, key=lambda each: each.nbytes)
    inside, outside = (
        [each for each in by_size[::-1] if each in chosen],
        [each for each in by_size if each not in chosen],
    )
    yield from (chosen - {each} for each in inside)
    yield from (chosen | {each} for each in outside)
    yield from (chosen - {one} | {other} for one in inside for other in outside)
