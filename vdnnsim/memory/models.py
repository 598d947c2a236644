"""Memory models by name, and `place`, which serves requests by one. Those of no framework are defined here.

`ideal` counts bytes and never fragments, as the papers' figures do. `best_fit` is the rule of cnmem, which vDNN uses
(III-B): a request takes the smallest free piece that is large enough, the lowest among equals; a freed piece merges
with its free neighbours. `cuda_vmm` counts bytes as `ideal` does, in blocks of 2 MiB that are mapped at addresses of
each buffer and unmapped one by one: the virtual memory management of CUDA (cuMemAddressReserve, cuMemCreate, cuMemMap).

Sources: github.com/NVIDIA/cnmem, src/cnmem.cpp (findBestBlock, releaseBlock); for pages of 2 MiB, and that to map and
unmap them is expensive, PyTorch's note on expandable segments in c10/cuda/CUDACachingAllocator.cpp. Assumption: it
takes no time, as other allocations.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from vdnnsim.memory.bfc import Regions
from vdnnsim.memory.caching import place_pytorch
from vdnnsim.memory.choices import MemoryChoice, MemoryModel, settings_of
from vdnnsim.memory.cuda_malloc import Driver
from vdnnsim.memory.free_pieces import FreePieces
from vdnnsim.memory.mxnet import place_mxnet
from vdnnsim.memory.online import Block, OnlinePool, serve
from vdnnsim.memory.packing import place_planned
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
from vdnnsim.units import MIB

MAPPED_BYTES: Final = 2 * MIB


class _Sum:
    """A pool without addresses, with a limit for the sum of bytes in use."""

    addressed: ClassVar[bool] = False

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._in_use_bytes = 0
        self.pool_bytes = 0

    def take(self, nbytes: int) -> Block | None:
        if nbytes > self._capacity_bytes - self._in_use_bytes:
            return None
        self._in_use_bytes += nbytes
        self.pool_bytes = max(self.pool_bytes, self._in_use_bytes)
        return Block(0, nbytes)

    def free(self, block: Block) -> None:
        self._in_use_bytes -= block.nbytes

    def largest_free(self, _: int) -> int:
        return self._capacity_bytes - self._in_use_bytes


class _Region:
    """One contiguous region of memory."""

    addressed: ClassVar[bool] = True

    def __init__(self, capacity_bytes: int) -> None:
        self._free = FreePieces()
        self._free.add(0, capacity_bytes)
        self.pool_bytes = 0

    def take(self, nbytes: int) -> Block | None:
        start = self._free.take(nbytes)
        if start is None:
            return None
        self.pool_bytes = max(self.pool_bytes, start + nbytes)
        return Block(start, nbytes)

    def free(self, block: Block) -> None:
        self._free.merge(*block)

    def largest_free(self, _: int) -> int:
        return self._free.largest_bytes


_ONLINE: Mapping[MemoryChoice, Callable[[int], OnlinePool]] = {
    MemoryModel.IDEAL: _Sum,
    MemoryModel.BEST_FIT: _Region,
    MemoryModel.CUDA_MALLOC: Driver,
    MemoryModel.TENSORFLOW: Regions,
    MemoryModel.CUDA_VMM: _Sum,
}
"""Pools that serve one request after the other."""

MODELS_WITH_EXTENTS: Final = (MemoryModel.IDEAL, MemoryModel.CUDA_VMM)
"""Models that can release parts of a buffer, and allocate them again at the same addresses."""


def place(
    requests: Sequence[Request],
    model: MemoryChoice,
    capacity_bytes: int,
    granule_bytes: int,
    total_bytes: int | None = None,
) -> Placed | Overflow:
    """Serve a whole sequence of requests by a memory model; each key is allocated and freed in turn.

    `total_bytes` is all memory of the GPU, to which fractions of PyTorch's settings refer; by default the capacity.
    """
    if (settings := settings_of(model)) is not None:
        return place_pytorch(requests, capacity_bytes, granule_bytes, settings, total_bytes)
    if model in _ONLINE:
        if model in MODELS_WITH_EXTENTS:
            granule_bytes = extent_granule_bytes(model, granule_bytes)
        return serve(requests, _ONLINE[model](capacity_bytes), capacity_bytes, granule_bytes)
    ahead = place_mxnet if model is MemoryModel.MXNET else place_planned
    return ahead(requests, capacity_bytes, granule_bytes)


def extent_granule_bytes(model: MemoryChoice, granule_bytes: int) -> int:
    """Return the unit in which one of `MODELS_WITH_EXTENTS` releases and reallocates parts of a buffer."""
    assert model in MODELS_WITH_EXTENTS
    return round_up(granule_bytes, MAPPED_BYTES) if model is MemoryModel.CUDA_VMM else granule_bytes
