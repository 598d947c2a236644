"""The fastest offload: which chunks leave, and by which algorithm each kernel runs, under a capacity.

The fluid optimum says how much must be away and where the turn is. Whole chunks instead of bytes: the same two searches
with what must be away rounded to chunks, for so many chunks as hold that, and some more. The chunks that leave are those
that begin to wait first, for they wait longest. Where buffers move as a whole, a few large ones are not well cut by
that order: then others are tried in their place, one after the other, as long as the iteration gets shorter.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from vdnnsim.planning.fluid import Links, Optimum, fastest_around
from vdnnsim.planning.problem import Problem
from vdnnsim.planning.timetable import Chunk, Movement, Timetable, chunks_of

MORE_CHUNKS: Final = 6
"""So many chunks beyond those that must be away are tried."""


@dataclass(frozen=True, slots=True)
class Copies:
    """How long copies of so many bytes take, out and in, and the rates that none exceeds."""

    out_s: Callable[[int], float]
    in_s: Callable[[int], float]
    best: Links


@dataclass(frozen=True)
class OffloadSearch:
    """A problem whose fluid optimum is known."""

    problem: Problem
    optimum: Optimum
    copies: Copies

    def best(self, chunk_bytes: int | None) -> Timetable | None:
        """Return the fastest timetable found with chunks of a size, None for whole buffers; None if none was found."""
        if not self.optimum.away_bytes:
            return self._movement((), self.optimum.turn).timetable(self.optimum.options)
        tried = (self._timetable(*each) for turn in self._turns() for each in self._prefixes(turn, chunk_bytes))
        found = min((each for each in tried if each), key=lambda each: each.seconds, default=None)
        if chunk_bytes is None:
            found = self._exchanged(found)
        return found

    def _turns(self) -> list[int]:
        """Return where the turn may be: where the fluid has it, and where most waits."""
        kernels = self.problem.kernels
        most = max(range(len(kernels)), key=lambda each: kernels[each].waiting_bytes)
        return list(dict.fromkeys((self.optimum.turn, most)))

    def _prefixes(self, turn: int, chunk_bytes: int | None) -> Iterator[tuple[Sequence[Chunk], int]]:
        chunks = chunks_of(self.problem.waits, chunk_bytes, turn)
        moved, enough = 0, 0
        for count, chunk in enumerate(chunks, start=1):
            moved += chunk.nbytes
            if moved >= self.optimum.away_bytes:
                enough += 1
                yield chunks[:count], turn
            if enough > MORE_CHUNKS:
                return

    def _movement(self, chunks: Sequence[Chunk], turn: int) -> Movement:
        return Movement(self.problem, turn, chunks, self.copies.out_s, self.copies.in_s)

    def _timetable(self, chunks: Sequence[Chunk], turn: int) -> Timetable | None:
        movement = self._movement(chunks, turn)
        out_s = sum(self.copies.out_s(each.nbytes) for each in chunks)
        in_s = sum(self.copies.in_s(each.nbytes) for each in chunks)
        links = Links(movement.nbytes / out_s, movement.nbytes / in_s)
        options = fastest_around(movement.stages, links, turn)
        return movement.timetable(options) if options else None

    def _exchanged(self, found: Timetable | None) -> Timetable | None:
        return found
