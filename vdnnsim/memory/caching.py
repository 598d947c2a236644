"""PyTorch's CUDA caching allocator: blocks cut from segments, which are kept when their blocks are freed.

A request is rounded up to the granule (512 B in PyTorch) and served from one of two pools of its stream: up to 1 MiB
from the small one, else from the large one. The smallest free block that is large enough is taken, among equals the
lowest of the oldest segment; only if there is none is memory taken from the GPU. A freed block merges with its free
neighbours in its segment, and serves requests of its stream and pool alone. When the GPU has no room, all free segments
are released and the request is tried once more, but not for `preallocated` memory, of which the GPU has none.

`Segments` take memory from the GPU and cut blocks: `vdnnsim.memory.segments` is PyTorch's default,
`vdnnsim.memory.expandable` is `expandable_segments:True`.

A freed block that other streams have used (`Tensor.record_stream`) is not reused until each of them has reached the
event recorded when it was freed. PyTorch queries the events at the next request, and waits for them before it releases
segments; a block that becomes free so is not searched again for this request (pytorch issue 189504).

A private pool (`torch.cuda.MemPool`) has segments and blocks of its own, which serve what is requested while it is in
use. `pool_bytes` is the maximum of reserved memory, the sum of `deltas` is allocated memory. The modelled settings of
PYTORCH_ALLOC_CONF are those of `vdnnsim.memory.settings`; pools of CUDA graphs are not modelled.

Addresses are in the order in which segments were taken: a later one lies above an earlier one. PyTorch 2.14 uses that
order, too (pytorch pull request 183591); earlier versions used the addresses of the driver.

Source: github.com/pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp (malloc, get_free_block, should_split, free_block,
process_events, release_cached_blocks) and c10/core/AllocatorConfig.h.
"""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from vdnnsim.memory.expandable import ExpandableSegments
from vdnnsim.memory.online import Block, serve
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.memory.segments import LARGEST_SMALL_BYTES, Segments, StreamPool, WholeSegments
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings


class CachingAllocator:
    """The allocator of one GPU in one process; streams are numbers of the caller's choice."""

    addressed: ClassVar[bool] = True

    def __init__(self, segments: Segments, settings: AllocatorSettings = DEFAULTS) -> None:
        self._segments = segments
        self._settings = settings
        self._rounds = self._settings.roundup_power2_divisions is not None
        self._pools: dict[tuple[int, int, bool], StreamPool] = {}
        # By the start of each block that is in use or waits.
        self._taken: dict[int, tuple[StreamPool, int]] = {}
        self._users: dict[int, set[int]] = {}
        # By stream, blocks that were freed while it used them, in order, and how many of these events it has reached;
        # by block, for how many streams it waits.
        self._waiting: dict[int, deque[Block]] = {}
        self._reached: dict[int, int] = {}
        self._awaited: dict[int, int] = {}
        self.allocated_bytes = 0

    @property
    def reserved_bytes(self) -> int:
        return self._segments.reserved_bytes

    @property
    def pool_bytes(self) -> int:
        return self._segments.most_reserved_bytes

    def take(self, nbytes: int, stream: int = 0, private: int = 0) -> Block | None:
        """Return a block of at least nbytes, which are whole granules; None where there is no room."""
        if not nbytes:
            return Block(0, 0)
        if self._reached:
            self._return_reached()
        if self._rounds:
            nbytes = self._settings.rounded(nbytes)
        pool, segments, pools = self._pool(nbytes, stream, private), self._segments, self._pools.values()
        found = segments.best_fit(pool, nbytes) or segments.grow(pool, nbytes, pools)
        if found is None and not self._settings.preallocated:
            self._return_reached(everything=True)
            segments.release_free(pools)
            found = segments.grow(pool, nbytes, pools)
        if found is None:
            return None
        size, start = found
        pool.free.remove(start, size)
        least_rest_bytes = segments.least_rest_bytes(pool, nbytes)
        if least_rest_bytes is not None and size - nbytes >= least_rest_bytes:
            pool.free.add(start + nbytes, size - nbytes)
            size = nbytes
        self._taken[start] = pool, stream
        self.allocated_bytes += size
        return Block(start, size)

    def record_use(self, block: Block, stream: int) -> None:
        """Record that another stream uses a block: `Tensor.record_stream`."""
        if block.nbytes and self._taken[block.start][1] != stream:
            self._users.setdefault(block.start, set()).add(stream)

    def free(self, block: Block) -> None:
        """Free a block; one that other streams have used waits for them."""
        if not block.nbytes:
            return
        self.allocated_bytes -= block.nbytes
        users = self._users.pop(block.start, None) if self._users else None
        if users is None:
            self._free(block)
            return
        self._awaited[block.start] = len(users)
        for stream in users:
            self._waiting.setdefault(stream, deque()).append(block)

    def reach(self, stream: int, blocks: int) -> None:
        """Set how many of the blocks that wait for a stream it has passed; the next request sees it."""
        assert blocks <= self.waiting_blocks(stream), "no more blocks wait for the stream"
        self._reached[stream] = blocks

    def waiting_blocks(self, stream: int) -> int:
        """Return how many blocks wait for a stream, as of the last request."""
        return len(self._waiting.get(stream, ()))

    def empty_cache(self) -> None:
        """Wait for all streams and release free segments: `torch.cuda.empty_cache`."""
        self._return_reached(everything=True)
        self._segments.release_free(self._pools.values())

    @property
    def segment_changes(self) -> int:
        """How often memory was taken from the GPU or released."""
        return self._segments.changes

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Start and bytes of its memory, contiguous within a segment."""
        return self._segments.ranges(self._pools.values())

    @property
    def segment_starts(self) -> list[int]:
        """Starts of segments in ascending order, the oldest first."""
        return list(self._segments.borders)

    @property
    def free_blocks(self) -> list[Block]:
        """The free blocks in ascending order."""
        return sorted(Block(start, size) for pool in self._pools.values() for size, start in pool.free.by_size)

    def largest_free(self, nbytes: int, private: int = 0) -> int:
        """Return the size of the largest piece for a request of nbytes: a free block, or the rest of the GPU."""
        left_bytes = self._segments.left_bytes
        # If the GPU has more left, a segment needs even more.
        return max(self._pool(nbytes, 0, private).free.largest_bytes, left_bytes if left_bytes < nbytes else 0)

    def _pool(self, nbytes: int, stream: int, private: int = 0) -> StreamPool:
        small = nbytes <= LARGEST_SMALL_BYTES
        pool = self._pools.get((stream, private, small))
        if pool is None:
            pool = self._pools[stream, private, small] = StreamPool(small=small, segments=self._segments)
        return pool

    def _free(self, block: Block) -> None:
        pool, _ = self._taken.pop(block.start)
        start, _ = pool.free.merge(*block)
        self._segments.became_free(start)

    def _return_reached(self, *, everything: bool = False) -> None:
        for stream, waiting in self._waiting.items():
            for _ in range(len(waiting) if everything else self._reached.get(stream, 0)):
                block = waiting.popleft()
                self._awaited[block.start] -= 1
                if not self._awaited[block.start]:
                    del self._awaited[block.start]
                    self._free(block)
        self._reached.clear()


def place_pytorch(
    requests: Sequence[Request],
    capacity_bytes: int,
    granule_bytes: int,
    settings: AllocatorSettings = DEFAULTS,
    total_bytes: int | None = None,
) -> Placed | Overflow:
    """Serve requests one by one as PyTorch does in a process that has not allocated anything before."""
    allocator = pytorch_allocator(capacity_bytes, granule_bytes, settings, total_bytes)
    return serve(requests, allocator, capacity_bytes, granule_bytes)


def pytorch_allocator(
    capacity_bytes: int, granule_bytes: int, settings: AllocatorSettings = DEFAULTS, total_bytes: int | None = None
) -> CachingAllocator:
    """Return an allocator that has not allocated anything; arguments as of `Segments`."""
    segments = ExpandableSegments if settings.expandable_segments else WholeSegments
    return CachingAllocator(segments(capacity_bytes, granule_bytes, settings, total_bytes), settings)
