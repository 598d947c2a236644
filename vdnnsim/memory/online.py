"""Online placement: requests are served one by one, without knowledge of those to come.

A pool states how it takes and gives back, and what it needed; `serve` asks it. The pools that no framework has stand
here: `ideal` counts bytes and never fragments, what the papers' figures add up. `best_fit` is the rule of cnmem, which
vDNN builds on (III-B): a request takes the smallest free piece that is large enough, the lowest one among equals, and
leaves what remains of it free; a piece that is given back merges at once with its free neighbours. `cuda_vmm` gives
every buffer addresses of its own, behind which it maps blocks of 2 MiB of the GPU, each of which can be given back by
itself: the virtual memory management of CUDA's driver (cuMemAddressReserve, cuMemCreate, cuMemMap).

Sources: github.com/NVIDIA/cnmem, src/cnmem.cpp (findBestBlock, releaseBlock); for the size of a page, 2 MiB on GPUs of
today, the note on expandable segments in c10/cuda/CUDACachingAllocator.cpp of PyTorch, which also says that to map and
unmap pages is expensive and holds up the GPU to some degree. Assumption: here it takes no time, as no allocation does.
"""

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Protocol, runtime_checkable

from vdnnsim.memory.free_pieces import FreePieces
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
from vdnnsim.units import MIB

MAPPED_BYTES: Final = 2 * MIB


class Block(NamedTuple):
    """What a request was given."""

    start: int
    nbytes: int


class OnlinePool(Protocol):
    """What a memory model states that places online; sizes come in whole granules.

    Attributes:
        addressed: whether where a block starts is an address, and not for the pool alone.
    """

    addressed: ClassVar[bool]

    @property
    def pool_bytes(self) -> int:
        """The most that it needed up to now, gaps included."""

    def take(self, nbytes: int) -> Block | None:
        """Take at least so many bytes; None where there is no room."""

    def give_back(self, block: Block) -> None:
        """Take back what `take` returned."""

    def largest_free(self, nbytes: int) -> int:
        """Return the size of the largest piece that a request of nbytes, for which there is no room, met."""


@runtime_checkable
class KeepingPool(OnlinePool, Protocol):
    """One that keeps what is given back, until it is told not to."""

    def empty_cache(self) -> None:
        """Give back to the GPU what is free as a whole."""


def serve(requests: Sequence[Request], pool: OnlinePool, capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Serve requests until one finds no room."""
    held: dict[int, Block] = {}
    offsets: list[int | None] = []
    deltas: list[int] = []
    in_use = most_searched = 0
    for position, request in enumerate(requests):
        if request.searches:
            assert isinstance(pool, KeepingPool)
            most_searched = max(most_searched, _searched(pool, request, granule_bytes))
            offsets.append(None)
            deltas.append(0)
            continue
        if request.nbytes is None:
            block = held.pop(request.key)
            pool.give_back(block)
            delta = -block.nbytes
        elif not request.resizes:
            nbytes = round_up(request.nbytes, granule_bytes)
            taken = pool.take(nbytes)
            if taken is None:
                return Overflow(position, tuple(held), capacity_bytes - in_use, pool.largest_free(nbytes))
            block = held[request.key] = taken
            delta = block.nbytes
        else:
            nbytes = round_up(request.nbytes, granule_bytes)
            before = held[request.key].nbytes
            taken = pool.take(max(0, nbytes - before))
            if taken is None:
                return Overflow(position, tuple(held), capacity_bytes - in_use, pool.largest_free(nbytes - before))
            if nbytes < before:
                pool.give_back(Block(taken.start, before - nbytes))
            block = held[request.key] = Block(taken.start, nbytes)
            delta = block.nbytes - before
        in_use += delta
        offsets.append(block.start if pool.addressed else None)
        deltas.append(delta)
    return Placed(tuple(offsets), tuple(deltas), pool.pool_bytes, 0 < pool.pool_bytes == most_searched)


def _searched(pool: KeepingPool, request: Request, granule_bytes: int) -> int:
    """Serve a search; return what the pool needed where that was more than ever before."""
    before, nbytes = pool.pool_bytes, request.nbytes or 0
    while nbytes and (block := pool.take(round_up(nbytes, granule_bytes))) is None:
        nbytes //= 2
    if nbytes:
        assert block is not None
        pool.give_back(block)
    pool.empty_cache()
    return pool.pool_bytes if pool.pool_bytes > before else 0


def place_ideal(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Serve requests as long as the sum of what is in use stays within the capacity."""
    return serve(requests, _Sum(capacity_bytes), capacity_bytes, granule_bytes)


def place_mapped(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Serve requests in blocks that are mapped behind addresses, of which there are enough."""
    return place_ideal(requests, capacity_bytes, round_up(granule_bytes, MAPPED_BYTES))


def place_best_fit(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Serve requests from the pieces of one region."""
    return serve(requests, _Region(capacity_bytes), capacity_bytes, granule_bytes)


class _Sum:
    """A pool without addresses."""

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

    def give_back(self, block: Block) -> None:
        self._in_use_bytes -= block.nbytes

    def largest_free(self, _: int) -> int:
        return self._capacity_bytes - self._in_use_bytes


class _Region:
    """One region of memory from its lowest address on."""

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

    def give_back(self, block: Block) -> None:
        self._free.give_back(*block)

    def largest_free(self, _: int) -> int:
        return self._free.largest_bytes
