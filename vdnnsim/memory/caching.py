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

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
from vdnnsim.units import MIB

LARGEST_SMALL_BYTES: Final = MIB
SMALL_SEGMENT_BYTES: Final = 2 * MIB
LARGE_SEGMENT_BYTES: Final = 20 * MIB
OWN_SEGMENT_BYTES: Final = 10 * MIB
SEGMENT_GRANULE_BYTES: Final = 2 * MIB


def place_caching(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Serve requests one by one as PyTorch does in a process that has not allocated anything before."""
    allocator = _Allocator(capacity_bytes, granule_bytes)
    held: dict[int, _Block | None] = {}
    offsets: list[int | None] = []
    deltas: list[int] = []
    for position, request in enumerate(requests):
        if request.nbytes is None:
            block = held.pop(request.key)
            offsets.append(block.start if block else 0)
            deltas.append(-block.nbytes if block else 0)
            if block:
                allocator.free(block)
            continue
        size = round_up(request.nbytes, granule_bytes)
        block = allocator.allocate(size) if size else None
        if size and block is None:
            in_use = sum(each.nbytes for each in held.values() if each)
            return Overflow(position, tuple(held), capacity_bytes - in_use, allocator.largest_free(size))
        held[request.key] = block
        offsets.append(block.start if block else 0)
        deltas.append(block.nbytes if block else 0)
    return Placed(tuple(offsets), tuple(deltas), allocator.peak_reserved_bytes)


@dataclass(slots=True, eq=False)
class _Block:
    """A piece of a segment, with its neighbours there."""

    start: int
    nbytes: int
    free: bool = True
    before: "_Block | None" = None
    after: "_Block | None" = None


@dataclass(slots=True)
class _Pool:
    """The free blocks of one pool, by size and then address.

    Attributes:
        least_rest_bytes: what must remain of a block for it to be cut.
    """

    least_rest_bytes: int
    by_size: list[tuple[int, int]] = field(default_factory=list)
    at: dict[int, _Block] = field(default_factory=dict)

    def add(self, block: _Block) -> None:
        insort(self.by_size, (block.nbytes, block.start))
        self.at[block.start] = block

    def remove(self, block: _Block) -> None:
        del self.by_size[bisect_left(self.by_size, (block.nbytes, block.start))]
        del self.at[block.start]

    def best_fit(self, nbytes: int) -> _Block | None:
        found = bisect_left(self.by_size, (nbytes, 0))
        return self.at[self.by_size[found][1]] if found < len(self.by_size) else None


class _Allocator:
    def __init__(self, capacity_bytes: int, granule_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._small = _Pool(granule_bytes)
        self._large = _Pool(LARGEST_SMALL_BYTES + 1)
        self._pool_of: dict[_Block, _Pool] = {}
        self._next_segment = 0
        self._reserved_bytes = 0
        self.peak_reserved_bytes = 0

    def allocate(self, nbytes: int) -> _Block | None:
        """Return a block in use of at least nbytes; None where there is no room."""
        pool = self._pool(nbytes)
        block = pool.best_fit(nbytes) or self._take_segment(pool, nbytes)
        if block is None:
            self._give_back_free_segments()
            block = self._take_segment(pool, nbytes)
        if block is None:
            return None
        pool.remove(block)
        rest_bytes = block.nbytes - nbytes
        if rest_bytes >= pool.least_rest_bytes:
            rest = _Block(block.start + nbytes, rest_bytes, before=block, after=block.after)
            if rest.after:
                rest.after.before = rest
            block.after, block.nbytes = rest, nbytes
            pool.add(rest)
        block.free = False
        self._pool_of[block] = pool
        return block

    def free(self, block: _Block) -> None:
        """Take a block back, and merge it with its free neighbours."""
        pool = self._pool_of.pop(block)
        block.free = True
        if block.after and block.after.free:
            pool.remove(block.after)
            self._swallow(block, block.after)
        if block.before and block.before.free:
            pool.remove(block.before)
            block = self._swallow(block.before, block)
        pool.add(block)

    def largest_free(self, nbytes: int) -> int:
        """Return the size of the largest block that a request of nbytes could have been given."""
        return self._pool(nbytes).by_size[-1][0] if self._pool(nbytes).by_size else 0

    def _pool(self, nbytes: int) -> _Pool:
        return self._small if nbytes <= LARGEST_SMALL_BYTES else self._large

    def _take_segment(self, pool: _Pool, nbytes: int) -> _Block | None:
        size = segment_bytes(nbytes)
        if self._reserved_bytes + size > self._capacity_bytes:
            return None
        block = _Block(self._next_segment, size)
        self._next_segment += size
        self._reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self._reserved_bytes)
        pool.add(block)
        return block

    def _give_back_free_segments(self) -> None:
        for pool in (self._small, self._large):
            for block in list(pool.at.values()):
                if block.before is None and block.after is None:
                    pool.remove(block)
                    self._reserved_bytes -= block.nbytes

    @staticmethod
    def _swallow(block: _Block, after: _Block) -> _Block:
        block.nbytes += after.nbytes
        block.after = after.after
        if block.after:
            block.after.before = block
        return block


def segment_bytes(nbytes: int) -> int:
    """Return the size of the segment that is taken from the GPU for a request that no free block can serve."""
    if nbytes <= LARGEST_SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if nbytes < OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return round_up(nbytes, SEGMENT_GRANULE_BYTES)
