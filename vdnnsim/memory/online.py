"""Online placement: requests are served one by one, without knowledge of those to come.

A pool states how it takes and gives back, and what it needed; `serve` asks it.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from vdnnsim.memory.requests import Overflow, Placed, Request, round_up


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

    def free(self, block: Block) -> None:
        """Take back what `take` returned."""

    def largest_free(self, nbytes: int) -> int:
        """Return the size of the largest piece that a request of nbytes, for which there is no room, met."""


@runtime_checkable
class KeepingPool(OnlinePool, Protocol):
    """One that keeps what is given back, until its cache is emptied."""

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
            pool.free(block)
            delta = -block.nbytes
        else:
            nbytes = round_up(request.nbytes, granule_bytes)
            before = held[request.key].nbytes if request.resizes else 0
            taken = pool.take(max(0, nbytes - before))
            if taken is None:
                return Overflow(position, tuple(held), capacity_bytes - in_use, pool.largest_free(nbytes - before))
            if nbytes < before:
                pool.free(Block(taken.start, before - nbytes))
            block = held[request.key] = Block(taken.start, nbytes) if request.resizes else taken
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
        pool.free(block)
    pool.empty_cache()
    return pool.pool_bytes if pool.pool_bytes > before else 0
