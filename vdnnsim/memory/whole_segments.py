"""Segments of PyTorch's caching allocator that are one cudaMalloc each, and given back as a whole: its default.

A segment has 2 MiB in the small pool, in the large one 20 MiB for requests below 10 MiB and the request's own size,
rounded up to 2 MiB, above. A block is cut when what remains of it is at least a granule (small pool) or more than 1 MiB
(large pool); else the whole of it counts as allocated.

Under `max_split_size_mb` no block of this size or more is cut, nor given to a smaller request; a request of this size
or more takes no block that is larger by 20 MiB or more. Before all that is free goes back to the GPU, segments of this
size go, as many as the request needs.

Under `garbage_collection_threshold` and `per_process_memory_fraction`, a request that finds no block while more is
reserved than the threshold gives back the segments of the large pool that were free for at least the mean time, counted
in requests to that pool, until enough went.

Source: github.com/pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp (get_allocation_size, should_split,
get_free_block, release_available_cached_blocks, garbage_collect_cached_blocks).
"""

from collections.abc import Iterable, Iterator
from typing import Final

from vdnnsim.memory.caching import LARGEST_SMALL_BYTES, StreamPool
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings
from vdnnsim.units import MIB

SMALL_SEGMENT_BYTES: Final = 2 * MIB
LARGE_SEGMENT_BYTES: Final = 20 * MIB
OWN_SEGMENT_BYTES: Final = 10 * MIB
SEGMENT_GRANULE_BYTES: Final = 2 * MIB


def segment_bytes(nbytes: int) -> int:
    """Return the size of the segment that is taken from the GPU for a request that no free block can serve."""
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


class WholeSegments:
    """Segments that are one cudaMalloc each.

    Args:
        capacity_bytes: memory of the GPU that is there for segments.
        granule_bytes: to which requests are rounded.
        settings: of the allocator.
        allowed_bytes: how much may be reserved, where settings say it.
    """

    def __init__(
        self,
        capacity_bytes: int,
        granule_bytes: int,
        settings: AllocatorSettings = DEFAULTS,
        allowed_bytes: int | None = None,
    ) -> None:
        self._settings = settings
        self._capacity_bytes = capacity_bytes if allowed_bytes is None else min(capacity_bytes, allowed_bytes)
        self._granule_bytes = granule_bytes
        self._uncut_bytes = None if settings.max_split_size_mb is None else settings.max_split_size_mb * MIB
        threshold = settings.garbage_collection_threshold
        self._collected_above = int(threshold * allowed_bytes) if threshold and allowed_bytes is not None else None
        # Requests to the large pools of all streams, and at which of them each segment became free.
        self._requests = 0
        self._free_since: dict[int, int] = {}
        self._next_segment = 0
        self.borders: dict[int, int] = {}
        self.reserved_bytes = 0
        self.most_reserved_bytes = 0
        self.changes = 0

    @property
    def left_bytes(self) -> int:
        """Return how much may still be taken from the GPU."""
        return self._capacity_bytes - self.reserved_bytes

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
        if self._lacks(size) and (not self._give_back_uncut(pool, nbytes) or self._lacks(size)):
            return None
        start = self._next_segment
        self._next_segment += size
        self.borders[start] = size
        self.reserved_bytes += size
        self.most_reserved_bytes = max(self.most_reserved_bytes, self.reserved_bytes)
        self.changes += 1
        pool.free.add(start, size)
        return size, start

    def least_rest_bytes(self, pool: StreamPool, nbytes: int) -> int | None:
        """Return the least that is worth to be cut off a block; None where it is not cut."""
        if self._uncut_bytes is None:
            return self._granule_bytes if pool.small else LARGEST_SMALL_BYTES + 1
        return least_rest_bytes(self._settings, nbytes, self._granule_bytes, small=pool.small)

    def became_free(self, start: int) -> None:
        """Note that a block came back, which now is part of a free one that starts there."""
        if self._collected_above is not None:
            self._free_since[start] = self._requests

    def give_back_free(self, pools: Iterable[StreamPool]) -> None:
        """Give back the segments in which nothing is in use."""
        for pool in pools:
            for start in list(self._free_segments(pool)):
                self._give_back(pool, start)

    def ranges(self, _: Iterable[StreamPool]) -> list[tuple[int, int]]:
        """Return start and bytes of all segments."""
        return list(self.borders.items())

    def _free_segments(self, pool: StreamPool) -> Iterator[int]:
        return (start for size, start in pool.free.by_size if self.borders.get(start) == size)

    def _give_back(self, pool: StreamPool, start: int) -> None:
        size = self.borders.pop(start)
        pool.free.remove(start, size)
        self.reserved_bytes -= size
        self.changes += 1

    def _lacks(self, nbytes: int) -> bool:
        return nbytes > self.left_bytes

    def _give_back_uncut(self, pool: StreamPool, nbytes: int) -> bool:
        """Give back one free segment that is never cut and as large as a request; else several, the largest first.

        PyTorch does not ask the GPU again where these alone are too small, though with what is there they might do.
        """
        if self._uncut_bytes is None:
            return False
        least_bytes = max(nbytes, self._uncut_bytes)
        if found := pool.free.best_fit(least_bytes):
            self._give_back(pool, found[1])
            return True
        given_bytes = 0
        while given_bytes < least_bytes and pool.free.largest_bytes >= self._uncut_bytes:
            size, start = pool.free.by_size[-1]
            self._give_back(pool, start)
            given_bytes += size
        return given_bytes >= least_bytes

    def _collect(self, pools: Iterable[StreamPool], wanted_bytes: int) -> None:
        """Give back segments that are free for the mean of their ages or longer, until enough went."""
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
                    self._give_back(pool, start)
                    del ages[start]
