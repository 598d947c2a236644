"""The online pool: best fit with coalescing, the rule of cnmem, which vDNN builds on (III-B).

A request takes the smallest free piece that is large enough, the lowest one among equals, and leaves what remains of
it free. A piece that is given back merges at once with its free neighbours. Fragmentation is thus a result.

Source: github.com/NVIDIA/cnmem, src/cnmem.cpp (findBestBlock, releaseBlock).
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from vdnnsim.memory.requests import Overflow, Placed, Request, round_up


class _FreePieces:
    """The free pieces of a pool, found by size, by start and by end."""

    def __init__(self, capacity_bytes: int) -> None:
        self.by_size: list[tuple[int, int]] = []
        self._size_at: dict[int, int] = {}
        self._start_before: dict[int, int] = {}
        self._add(0, capacity_bytes)

    def take(self, nbytes: int) -> int | None:
        """Take nbytes from the smallest piece that holds them; return their address, None if there is no such piece."""
        if not nbytes:
            return 0
        found = bisect_left(self.by_size, (nbytes, 0))
        if found == len(self.by_size):
            return None
        size, start = self.by_size[found]
        self._remove(start, size)
        self._add(start + nbytes, size - nbytes)
        return start

    def give_back(self, start: int, nbytes: int) -> None:
        """Return a piece and merge it with its free neighbours."""
        if not nbytes:
            return
        end = start + nbytes
        if end in self._size_at:
            size = self._size_at[end]
            self._remove(end, size)
            end += size
        if start in self._start_before:
            before = self._start_before[start]
            self._remove(before, start - before)
            start = before
        self._add(start, end - start)

    def _add(self, start: int, size: int) -> None:
        if size:
            insort(self.by_size, (size, start))
            self._size_at[start] = size
            self._start_before[start + size] = start

    def _remove(self, start: int, size: int) -> None:
        del self.by_size[bisect_left(self.by_size, (size, start))]
        del self._size_at[start]
        del self._start_before[start + size]


def place_best_fit(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Serve requests one by one, without knowledge of those to come."""
    free = _FreePieces(capacity_bytes)
    held: dict[int, tuple[int, int]] = {}
    offsets: list[int | None] = []
    deltas: list[int] = []
    highest = 0
    for position, request in enumerate(requests):
        if request.nbytes is None:
            start, size = held.pop(request.key)
            free.give_back(start, size)
            offsets.append(start)
            deltas.append(-size)
            continue
        size = round_up(request.nbytes, granule_bytes)
        found = free.take(size)
        if found is None:
            total = sum(piece for piece, _ in free.by_size)
            largest = free.by_size[-1][0] if free.by_size else 0
            return Overflow(position, tuple(held), total, largest)
        held[request.key] = (found, size)
        offsets.append(found)
        deltas.append(size)
        highest = max(highest, found + size)
    return Placed(tuple(offsets), tuple(deltas), highest)
