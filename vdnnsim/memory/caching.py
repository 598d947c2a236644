"""PyTorch's CUDA caching allocator: blocks cut from segments, which are kept when their blocks are freed.

A request is rounded up to the granule (512 B in PyTorch) and served from one of two pools of the stream on which it is
made: up to 1 MiB from the small one, else from the large one. The smallest free block that is large enough is taken,
among equals the lowest of the oldest segment; only if there is none is memory taken from the GPU. A block given back
merges at once with its free neighbours in its segment, and serves requests of its stream and pool alone. When the GPU
has no room, all that is free as a whole is given back to it, and the GPU is asked once more; where memory was taken
ahead (`preallocated`) it is not, for what has no room there is not the GPU.

How segments are taken from the GPU and blocks cut from them is the business of `Segments`: PyTorch's default stands in
`vdnnsim.memory.segments`, what `expandable_segments:True` makes of it in `vdnnsim.memory.expandable`.

A block that other streams have used (`Tensor.record_stream`) serves nobody when it is given back, until each of them
has come to where it was then. PyTorch asks for that at the next request, and waits for it before it gives back to the
GPU what is free; a block that comes back so is not looked for again (pytorch issue 189504).

`pool_bytes` is the maximum of what PyTorch calls reserved, the sum of `deltas` what it calls allocated. Of
PYTORCH_ALLOC_CONF those settings are modelled that `vdnnsim.memory.settings` names; pools of CUDA graphs are not.

Addresses here say the order in which segments were taken: a later one lies above an earlier one. PyTorch 2.14 goes by
that order, too (pytorch pull request 183591); earlier ones went by the addresses, which are the driver's affair.

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
    """The allocator of one GPU in one process. Streams are numbers; which, is up to the caller.

    Attributes:
        allocated_bytes: in blocks that are in use.
    """

    addressed: ClassVar[bool] = True

    def __init__(self, segments: Segments, settings: AllocatorSettings = DEFAULTS) -> None:
        self._segments = segments
        self._settings = settings
        self._rounds = self._settings.roundup_power2_divisions is not None
        self._pools: dict[tuple[int, bool], StreamPool] = {}
        # By the start of each block that is in use or waits.
        self._taken: dict[int, tuple[StreamPool, int]] = {}
        self._users: dict[int, set[int]] = {}
        # Blocks that were given back, in that order, by each stream that has used them; how many of them the GPU has
        # come past there; and for how many streams each waits.
        self._waiting: dict[int, deque[Block]] = {}
        self._reached: dict[int, int] = {}
        self._awaited: dict[int, int] = {}
        self.allocated_bytes = 0

    @property
    def reserved_bytes(self) -> int:
        """What it holds of the GPU."""
        return self._segments.reserved_bytes

    @property
    def pool_bytes(self) -> int:
        """The most that it held of the GPU up to now."""
        return self._segments.most_reserved_bytes

    def take(self, nbytes: int, stream: int = 0) -> Block | None:
        """Return a block of at least nbytes, which are whole granules; None where there is no room."""
        if not nbytes:
            return Block(0, 0)
        if self._reached:
            self._return_reached()
        if self._rounds:
            nbytes = self._settings.rounded(nbytes)
        pool, segments, pools = self._pool(nbytes, stream), self._segments, self._pools.values()
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
        """Note that work on another stream uses a block: `Tensor.record_stream`."""
        if block.nbytes and self._taken[block.start][1] != stream:
            self._users.setdefault(block.start, set()).add(stream)

    def free(self, block: Block) -> None:
        """Take a block back; one that other streams have used waits for them."""
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
        """Note past how many of the blocks that wait for a stream the GPU has come there; the next request sees it."""
        assert blocks <= self.waiting_blocks(stream), "no more blocks wait for the stream"
        self._reached[stream] = blocks

    def waiting_blocks(self, stream: int) -> int:
        """Return how many blocks wait for a stream, as far as requests have seen."""
        return len(self._waiting.get(stream, ()))

    def empty_cache(self) -> None:
        """Wait for all streams and give back to the GPU what is free as a whole: `torch.cuda.empty_cache`."""
        self._return_reached(everything=True)
        self._segments.release_free(self._pools.values())

    @property
    def segment_changes(self) -> int:
        """How often memory was taken from the GPU or given back to it."""
        return self._segments.changes

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Start and bytes of all memory that it holds, in one piece what is of one segment."""
        return self._segments.ranges(self._pools.values())

    @property
    def segment_starts(self) -> list[int]:
        """Where segments start, from the lowest on, which is the oldest."""
        return list(self._segments.borders)

    @property
    def free_blocks(self) -> list[Block]:
        """The blocks that are free and kept, from the lowest on."""
        return sorted(Block(start, size) for pool in self._pools.values() for size, start in pool.free.by_size)

    def largest_free(self, nbytes: int) -> int:
        """Return the size of the largest block that a request of nbytes met: free, or all that the GPU has left."""
        left_bytes = self._segments.left_bytes
        # Of a GPU that has as much, a segment would have taken more.
        return max(self._pool(nbytes, 0).free.largest_bytes, left_bytes if left_bytes < nbytes else 0)

    def _pool(self, nbytes: int, stream: int) -> StreamPool:
        small = nbytes <= LARGEST_SMALL_BYTES
        pool = self._pools.get((stream, small))
        if pool is None:
            pool = self._pools[stream, small] = StreamPool(small=small, segments=self._segments)
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
