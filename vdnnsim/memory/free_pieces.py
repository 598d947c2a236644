"""Free pieces of memory: the smallest that is large enough is taken, and neighbours merge."""

from bisect import bisect_left, insort
from collections.abc import Container


class FreePieces:
    """Pieces of memory found by size, by start and by end; `by_size` is (bytes, start) of each, in order."""

    def __init__(self, borders: Container[int] = ()) -> None:
        """Begin without a piece; pieces never merge across a border."""
        self._borders = borders
        self.by_size: list[tuple[int, int]] = []
        self._size_at: dict[int, int] = {}
        self._start_before: dict[int, int] = {}

    @property
    def largest_bytes(self) -> int:
        """Bytes of the largest piece; 0 where there is none."""
        return self.by_size[-1][0] if self.by_size else 0

    @property
    def starts(self) -> list[int]:
        return sorted(self._size_at)

    def size_at(self, start: int) -> int:
        """Return the bytes of the piece at `start`; 0 if there is none."""
        return self._size_at.get(start, 0)

    def start_before(self, end: int) -> int | None:
        """Return the start of the piece that ends at `end`; None if there is none."""
        return self._start_before.get(end)

    def place_of(self, nbytes: int) -> int:
        """Return the index in `by_size` of the smallest piece that holds nbytes; its length if there is none."""
        return bisect_left(self.by_size, (nbytes, 0))

    def best_fit(self, nbytes: int) -> tuple[int, int] | None:
        """Return bytes and start of the smallest piece that holds nbytes, the lowest among equals; None without one."""
        found = self.place_of(nbytes)
        return self.by_size[found] if found < len(self.by_size) else None

    def take(self, nbytes: int) -> int | None:
        """Take nbytes from the smallest piece that holds them; return their address; None without such a piece."""
        if not nbytes:
            return 0
        found = self.best_fit(nbytes)
        if found is None:
            return None
        size, start = found
        self.remove(start, size)
        self.add(start + nbytes, size - nbytes)
        return start

    def merge(self, start: int, nbytes: int) -> tuple[int, int]:
        """Add a piece and merge it with its free neighbours; return start and bytes of the merged piece."""
        if not nbytes:
            return start, nbytes
        end = start + nbytes
        if end in self._size_at and end not in self._borders:
            size = self._size_at[end]
            self.remove(end, size)
            end += size
        if start in self._start_before and start not in self._borders:
            before = self._start_before[start]
            self.remove(before, start - before)
            start = before
        self.add(start, end - start)
        return start, end - start

    def add(self, start: int, size: int) -> None:
        """Add a piece without merging; an empty one is ignored."""
        if size:
            insort(self.by_size, (size, start))
            self._size_at[start] = size
            self._start_before[start + size] = start

    def remove(self, start: int, size: int) -> None:
        del self.by_size[bisect_left(self.by_size, (size, start))]
        del self._size_at[start]
        del self._start_before[start + size]
