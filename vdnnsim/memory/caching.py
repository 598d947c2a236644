"""PyTorch's CUDA caching allocator: blocks cut from segments, which are kept when their blocks are given back.

A request is rounded up to the granule (512 B in PyTorch) and served from one of two pools: up to 1 MiB from the small
one, whose segments have 2 MiB, else from the large one, whose segments have 20 MiB for requests below 10 MiB and the
request's own size, rounded up to 2 MiB, above. The smallest free block that is large enough is taken, the lowest among
equals; only if there is none is a segment taken from the GPU. A block is cut when what remains of it is at least a
granule (small pool) or more than 1 MiB (large pool); else the whole of it counts as allocated. A block given back
merges at once with its free neighbours in its segment. When the GPU has no room for a segment, all segments that are
free as a whole are given back to it, and the request is tried once more.

`pool_bytes` is what PyTorch calls reserved, the sum of `deltas` what it calls allocated. All requests come from one
stream, as the plans of vDNN have it, and PYTORCH_ALLOC_CONF is not set.

Source: github.com/pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp (malloc, get_free_block, should_split, free_block,
release_cached_blocks) and c10/core/AllocatorConfig.h. Assumption: a later segment lies above an earlier one; addresses
decide only between blocks of equal size.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from vdnnsim.memory.free_pieces import FreePieces
from vdnnsim.memory.online import Block, serve
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
from vdnnsim.units import MIB

LARGEST_SMALL_BYTES: Final = MIB
SMALL_SEGMENT_BYTES: Final = 2 * MIB
LARGE_SEGMENT_BYTES: Final = 20 * MIB
OWN_SEGMENT_BYTES: Final = 10 * MIB
SEGMENT_GRANULE_BYTES: Final = 2 * MIB


def place_caching(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Serve requests one by one as PyTorch does in a process that has not allocated anything before."""
    return serve(requests, _Segments(capacity_bytes, granule_bytes), capacity_bytes, granule_bytes)


class _Segments:
    """The segments of both pools, and the free blocks in them."""

    addressed: ClassVar[bool] = True

    def __init__(self, capacity_bytes: int, granule_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._granule_bytes = granule_bytes
        # The segments by their start; blocks of two never merge.
        self._segments: dict[int, int] = {}
        self._small = FreePieces(self._segments)
        self._large = FreePieces(self._segments)
        self._pool_of: dict[int, FreePieces] = {}
        self._next_segment = 0
        self._reserved_bytes = 0
        self.pool_bytes = 0

    def take(self, nbytes: int) -> Block | None:
        """Return a block of at least nbytes; None where there is no room."""
        if not nbytes:
            return Block(0, 0)
        pool = self._pool(nbytes)
        found = pool.best_fit(nbytes) or self._take_segment(nbytes)
        if found is None:
            self._give_back_free_segments()
            found = self._take_segment(nbytes)
        if found is None:
            return None
        size, start = found
        pool.remove(start, size)
        least_rest_bytes = self._granule_bytes if pool is self._small else LARGEST_SMALL_BYTES + 1
        if size - nbytes >= least_rest_bytes:
            pool.add(start + nbytes, size - nbytes)
            size = nbytes
        self._pool_of[start] = pool
        return Block(start, size)

    def give_back(self, block: Block) -> None:
        """Take a block back, and merge it with its free neighbours."""
        if block.nbytes:
            self._pool_of.pop(block.start).give_back(*block)

    def largest_free(self, nbytes: int) -> int:
        """Return the size of the largest block that a request of nbytes could have been given."""
        return self._pool(nbytes).largest_bytes

    def _pool(self, nbytes: int) -> FreePieces:
        return self._small if nbytes <= LARGEST_SMALL_BYTES else self._large

    def _take_segment(self, nbytes: int) -> tuple[int, int] | None:
        size, start = segment_bytes(nbytes), self._next_segment
        if self._reserved_bytes + size > self._capacity_bytes:
            return None
        self._segments[start] = size
        self._next_segment += size
        self._reserved_bytes += size
        self.pool_bytes = max(self.pool_bytes, self._reserved_bytes)
        self._pool(nbytes).add(start, size)
        return size, start

    def _give_back_free_segments(self) -> None:
        for pool in (self._small, self._large):
            for size, start in [(size, start) for size, start in pool.by_size if self._segments.get(start) == size]:
                pool.remove(start, size)
                del self._segments[start]
                self._reserved_bytes -= size


def segment_bytes(nbytes: int) -> int:
    """Return the size of the segment that is taken from the GPU for a request that no free block can serve."""
    if nbytes <= LARGEST_SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if nbytes < OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return round_up(nbytes, SEGMENT_GRANULE_BYTES)
