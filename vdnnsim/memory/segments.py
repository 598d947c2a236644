"""Segments of PyTorch's caching allocator: their interface, and the default, one cudaMalloc each.

A whole segment has 2 MiB in the small pool, in the large one 20 MiB for requests below 10 MiB and the request's own
size, rounded up to 2 MiB, above. A block is cut when what remains of it is at least a granule (small pool) or more than
1 MiB (large pool); else the whole of it counts as allocated.

Under `max_split_size_mb` no block of this size or more is cut, nor serves a smaller request; a request of this size or
more takes no block that is larger by 20 MiB or more. Before all free segments, segments of this size are released, as
many as the request needs.

Under `garbage_collection_threshold` and `per_process_memory_fraction`, a request that finds no block while more than
the threshold is reserved releases segments of the large pool that were free for at least the mean time, counted in
requests to that pool, until that is enough.

Source: github.com/pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp (get_allocation_size, should_split,
get_free_block, release_available_cached_blocks, garbage_collect_cached_blocks).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Final

from vdnnsim.memory.free_pieces import FreePieces
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings
from vdnnsim.units import MIB

LARGEST_SMALL_BYTES: Final = MIB
SMALL_SEGMENT_BYTES: Final = 2 * MIB
LARGE_SEGMENT_BYTES: Final = 20 * MIB
OWN_SEGMENT_BYTES: Final = 10 * MIB
SEGMENT_GRANULE_BYTES: Final = 2 * MIB


def segment_bytes(nbytes: int) -> int:
    if nbytes <= LARGEST_SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if nbytes < OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return round_up(nbytes, SEGMENT_GRANULE_BYTES)


def least_rest_bytes(settings: AllocatorSettings, nbytes: int, granule_bytes: int, *, small: bool) -> int | None:
    """Return the least that is cut off a block when nbytes of it are taken; None where it is never cut."""
    if small:
        return granule_bytes
    uncut_mb = settings.max_split_size_mb
    return LARGEST_SMALL_BYTES + 1 if uncut_mb is None or nbytes < uncut_mb * MIB else None


class StreamPool:
    """Free blocks in the segments of one stream and size class.

    Attributes:
        small: whether it serves requests of at most 1 MiB.
        free: blocks in memory.
        unmapped: ranges of addresses without memory.
    """

    def __init__(self, *, small: bool, segments: "Segments") -> None:
        self.small = small
        self.free = FreePieces(segments.borders)
        self.unmapped = FreePieces(segments.borders)


class Segments(ABC):
    """Takes segments from the GPU, cuts blocks off them, and releases them.

    Args:
        capacity_bytes: memory of the GPU for segments.
        granule_bytes: to which requests are rounded.
        total_bytes: all memory of the GPU, of which settings may allow a part; by default the capacity.

    Attributes:
        borders: starts and sizes of segments; no block crosses one.
        reserved_bytes: memory of the GPU in all segments.
        changes: how often memory was taken or released.
    """

    def __init__(
        self,
        capacity_bytes: int,
        granule_bytes: int,
        settings: AllocatorSettings = DEFAULTS,
        total_bytes: int | None = None,
    ) -> None:
        self._capacity_bytes, self._granule_bytes, self._settings = capacity_bytes, granule_bytes, settings
        self._total_bytes = capacity_bytes if total_bytes is None else total_bytes
        self._allowed_bytes = settings.allowed_bytes(self._total_bytes)
        self._next_segment = 0
        self.borders: dict[int, int] = {}
        self.reserved_bytes = self.most_reserved_bytes = self.changes = 0

    @property
    def left_bytes(self) -> int:
        return self._capacity_bytes - self.reserved_bytes

    @abstractmethod
    def best_fit(self, pool: StreamPool, nbytes: int) -> tuple[int, int] | None:
        """Return bytes and start of the free block that a request takes, if there is one."""

    @abstractmethod
    def grow(self, pool: StreamPool, nbytes: int, pools: Iterable[StreamPool]) -> tuple[int, int] | None:
        """Take memory for a request from the GPU; return bytes and start of the free block; None without room."""

    @abstractmethod
    def least_rest_bytes(self, pool: StreamPool, nbytes: int) -> int | None:
        """Return the least that is cut off a block when nbytes of it are taken; None where it is never cut."""

    def became_free(self, start: int) -> None:  # noqa: B027 - not all need it
        """Note that a block was freed, which is now part of the free one at `start`."""

    @abstractmethod
    def release_free(self, pools: Iterable[StreamPool]) -> None:
        """Release all free memory that can be."""

    @abstractmethod
    def ranges(self, pools: Iterable[StreamPool]) -> list[tuple[int, int]]:
        """Return start and bytes of all memory, contiguous within a segment."""

    def _add_segment(self, nbytes: int) -> int:
        """Add a segment above all others; return its start."""
        start = self._next_segment
        self._next_segment += nbytes
        self.borders[start] = nbytes
        return start

    def _change_reserved(self, nbytes: int) -> None:
        self.reserved_bytes += nbytes
        self.most_reserved_bytes = max(self.most_reserved_bytes, self.reserved_bytes)
        self.changes += 1


class WholeSegments(Segments):
    """Segments that are one cudaMalloc each."""

    def __init__(
        self,
        capacity_bytes: int,
        granule_bytes: int,
        settings: AllocatorSettings = DEFAULTS,
        total_bytes: int | None = None,
    ) -> None:
        super().__init__(capacity_bytes, granule_bytes, settings, total_bytes)
        self._uncut_bytes = None if settings.max_split_size_mb is None else settings.max_split_size_mb * MIB
        self._collected_above: int | None = None
        if (allowed_bytes := self._allowed_bytes) is not None:
            self._capacity_bytes = min(capacity_bytes, allowed_bytes)
            if threshold := settings.garbage_collection_threshold:
                self._collected_above = int(threshold * allowed_bytes)
        # Requests to the large pools of all streams, and at which of them each segment became free.
        self._requests = 0
        self._free_since: dict[int, int] = {}

    def best_fit(self, pool: StreamPool, nbytes: int) -> tuple[int, int] | None:
        """Return bytes and start of the smallest free block that is large enough, the lowest among equals."""
        self._requests += not pool.small
        found = pool.free.best_fit(nbytes)
        if found is None or self._uncut_bytes is None:
            return found
        return found if self._settings.may_serve(found[0], nbytes) else None

    def grow(self, pool: StreamPool, nbytes: int, pools: Iterable[StreamPool]) -> tuple[int, int] | None:
        """Take a segment for a request; return its bytes and start; None where the GPU has no room."""
        if self._collected_above is not None and self.reserved_bytes > self._collected_above:
            self._collect(pools, self.reserved_bytes - self._collected_above)
        size = segment_bytes(nbytes)
        if size > self.left_bytes and (not self._release_uncut(pool, nbytes) or size > self.left_bytes):
            return None
        start = self._add_segment(size)
        self._change_reserved(size)
        pool.free.add(start, size)
        return size, start

    def least_rest_bytes(self, pool: StreamPool, nbytes: int) -> int | None:
        """Return the least that is cut off a block; None if it is not cut."""
        if self._uncut_bytes is None:
            return self._granule_bytes if pool.small else LARGEST_SMALL_BYTES + 1
        return least_rest_bytes(self._settings, nbytes, self._granule_bytes, small=pool.small)

    def became_free(self, start: int) -> None:
        """Note since when a block is free, where ages decide what is collected."""
        if self._collected_above is not None:
            self._free_since[start] = self._requests

    def release_free(self, pools: Iterable[StreamPool]) -> None:
        for pool in pools:
            for start in list(self._free_segments(pool)):
                self._release(pool, start)

    def ranges(self, _: Iterable[StreamPool]) -> list[tuple[int, int]]:
        """Return start and bytes of all segments."""
        return list(self.borders.items())

    def _free_segments(self, pool: StreamPool) -> Iterator[int]:
        return (start for size, start in pool.free.by_size if self.borders.get(start) == size)

    def _release(self, pool: StreamPool, start: int) -> None:
        size = self.borders.pop(start)
        pool.free.remove(start, size)
        self._change_reserved(-size)

    def _release_uncut(self, pool: StreamPool, nbytes: int) -> bool:
        """Release one free segment that is never cut and as large as a request; else several, the largest first.

        Return whether they are as large as the request; if not, PyTorch does not try it, though there might be room.
        """
        if self._uncut_bytes is None:
            return False
        least_bytes = max(nbytes, self._uncut_bytes)
        if found := pool.free.best_fit(least_bytes):
            self._release(pool, found[1])
            return True
        given_bytes = 0
        while given_bytes < least_bytes and pool.free.largest_bytes >= self._uncut_bytes:
            size, start = pool.free.by_size[-1]
            self._release(pool, start)
            given_bytes += size
        return given_bytes >= least_bytes

    def _collect(self, pools: Iterable[StreamPool], wanted_bytes: int) -> None:
        """Release segments that were free for the mean of their ages or longer, until that is enough."""
        ages = {
            start: (pool, self._requests - self._free_since[start])
            for pool in pools
            if not pool.small
            for start in self._free_segments(pool)
        }
        while ages and wanted_bytes > 0:
            mean = sum(age for _, age in ages.values()) / len(ages)
            for start, (pool, age) in list(ages.items()):
                if age >= mean:
                    wanted_bytes -= self.borders[start]
                    self._release(pool, start)
                    del ages[start]
