"""TensorFlow's BFC allocator (best fit with coalescing) under `allow_growth`: chunks of regions that it keeps.

A request is rounded up to the granule and to 256 B. It takes the smallest free chunk that is large enough, the lowest
among equals, as a search of bins by powers of two finds it. A chunk is split when it is at least twice as large as the
request or 128 MiB or more would be left; else the request has the whole of it. A freed chunk merges with its free
neighbours in its region.

If no chunk is large enough, a region is taken from the GPU, which is never given back. The first has 1 MiB, each later
one twice as much as the one before; for a larger request it is doubled until it holds the request, and the next region
has the same size. A region is no larger than the rest of the limit.

The limit is the free memory of the GPU, less what is left to the system: a twentieth, but at least 300 MiB; 225 MiB if
less than 2 GiB are free, and nothing if no more than these 225 MiB are. So regions, which take up to 3 MiB more in the
driver's blocks than they hold, reach the limit before the GPU is full, except on the smallest. There, the first time
that the GPU has no room for a region, nine tenths of it are tried repeatedly, down to the request; later regions are
not tried smaller.

`pool_bytes` is the memory of the regions in the driver's blocks (`vdnnsim.memory.cuda_malloc`), as nvidia-smi shows it;
`deltas` count chunks in use.

Sources: tensorflow/core/common_runtime/bfc_allocator.cc (Extend, FindChunkPtr, SplitChunk, FreeAndMaybeCoalesce) of
github.com/tensorflow/tensorflow at dc0b924e80edbe869c2173fd383982bb80ecc90d, and the same in
github.com/jinliangwei/tensorflow-1.12a at 6b71729d47515a641c3af4e7df01f2e72374fffe, a copy of version 1.12;
bfc_allocator.h (kMinAllocationSize, Bin) of the former at 1e43b062e51f70fe9f268c69a74f5a9e98595a72; the limit is that
of gpu/gpu_device.cc of the copy (MinSystemMemory, SingleVirtualDeviceMemoryLimit). Version 2 begins with 2 MiB and can
give regions back.

Left out: limits that the user states as a fraction; waiting up to 10 s for another thread to free memory.
Assumptions: a later region lies above an earlier one; addresses decide only between chunks of equal size.
"""

from collections.abc import Iterator
from typing import ClassVar, Final

from vdnnsim.memory.cuda_malloc import Driver
from vdnnsim.memory.free_pieces import FreePieces
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import round_up
from vdnnsim.units import GIB, MIB

LEAST_CHUNK_BYTES: Final = 256
FIRST_REGION_BYTES: Final = MIB
SPLIT_REST_BYTES: Final = 128 * MIB

_SMALL_GPU_BYTES: Final = 2 * GIB
_LEFT_BY_SMALL_BYTES: Final = 225 * MIB
_LEFT_AT_LEAST_BYTES: Final = 300 * MIB
_LEFT_PART: Final = 20
"""What is left to the system: a twentieth of what is free."""


class Regions:
    """Regions and their free chunks; on overflow, memory left to the system counts as free, but not as a piece."""

    addressed: ClassVar[bool] = True

    def __init__(self, capacity_bytes: int) -> None:
        self._driver = Driver(capacity_bytes)
        self._free = FreePieces()
        self._limit_left_bytes = _limit_bytes(capacity_bytes)
        self._region_bytes = round_up(min(self._limit_left_bytes, FIRST_REGION_BYTES), LEAST_CHUNK_BYTES)
        self._next_region = 0
        self._backpedalled = False

    @property
    def pool_bytes(self) -> int:
        return self._driver.handed_out_bytes

    def take(self, nbytes: int) -> Block | None:
        """Return a chunk of at least nbytes; None where there is no room."""
        if not nbytes:
            return Block(0, 0)
        nbytes = round_up(nbytes, LEAST_CHUNK_BYTES)
        found = self._free.best_fit(nbytes) or self._extend(nbytes)
        if found is None:
            return None
        size, start = found
        self._free.remove(start, size)
        if size >= 2 * nbytes or size - nbytes >= SPLIT_REST_BYTES:
            self._free.add(start + nbytes, size - nbytes)
            size = nbytes
        return Block(start, size)

    def free(self, block: Block) -> None:
        """Free a chunk, and merge it with its free neighbours."""
        self._free.merge(*block)

    def largest_free(self, nbytes: int) -> int:
        """Return the largest of the free chunks and of a possible region, if that is too small for nbytes.

        The GPU may have more left, since a region is tried smaller only once.
        """
        nbytes = round_up(nbytes, LEAST_CHUNK_BYTES)
        left = min(self._driver.largest_free(nbytes), self._available_bytes)
        return max(self._free.largest_bytes, left if left < nbytes else 0)

    @property
    def _available_bytes(self) -> int:
        """The rest of the limit, in whole chunks."""
        return self._limit_left_bytes // LEAST_CHUNK_BYTES * LEAST_CHUNK_BYTES

    def _extend(self, nbytes: int) -> tuple[int, int] | None:
        """Take a region that holds nbytes; return size and start of its free chunk."""
        available = self._available_bytes
        if nbytes > available:
            return None
        enlarged = nbytes > self._region_bytes
        while nbytes > self._region_bytes:
            self._region_bytes *= 2
        size = self._take_region(min(self._region_bytes, available), nbytes)
        if size is None:
            return None
        if not enlarged:
            self._region_bytes *= 2
        start = self._next_region
        # Regions lie apart, so that chunks of two never merge.
        self._next_region += size + LEAST_CHUNK_BYTES
        self._limit_left_bytes -= size
        self._free.add(start, size)
        return size, start

    def _take_region(self, nbytes: int, least_bytes: int) -> int | None:
        """Return the size of the region that was allocated; None without room."""
        if self._driver.take(nbytes) is not None:
            return nbytes
        if self._backpedalled:
            return None
        self._backpedalled = True
        smaller = _backpedal(nbytes, least_bytes)
        return next((size for size in smaller if self._driver.take(size) is not None), None)


def _limit_bytes(free_bytes: int) -> int:
    is_small = free_bytes < _SMALL_GPU_BYTES
    left_bytes = _LEFT_BY_SMALL_BYTES if is_small else max(_LEFT_AT_LEAST_BYTES, free_bytes // _LEFT_PART)
    return free_bytes - left_bytes if left_bytes < free_bytes else free_bytes


def _backpedal(nbytes: int, least_bytes: int) -> Iterator[int]:
    """Yield nine tenths of a region, nine tenths of that and so on."""
    while (smaller := round_up(nbytes * 9 // 10, LEAST_CHUNK_BYTES)) >= least_bytes:
        if smaller == nbytes:
            # Below 2560 B rounding changes nothing; the source would loop forever.
            return
        yield smaller
        nbytes = smaller
