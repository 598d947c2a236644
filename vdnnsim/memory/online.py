"""Online placement: requests are served one by one, without knowledge of later ones."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from vdnnsim.memory.requests import Overflow, Placed, Request, round_up


class Block(NamedTuple):
    """The memory of a request."""

    start: int
    nbytes: int


class OnlinePool(Protocol):
    """A memory model that places online; sizes are whole granules."""

    addressed: ClassVar[bool]

    @property
    def pool_bytes(self) -> int:
        """The most memory that it needed up to now, gaps included."""

    def take(self, nbytes: int) -> Block | None:
        """Allocate at least nbytes; None without room."""

    def free(self, block: Block) -> None:
        """Free a block that `take` returned."""

    def largest_free(self, nbytes: int) -> int:
        """Return the size of the largest piece that is free for a request of nbytes, which has no room."""


@runtime_checkable
class KeepingPool(OnlinePool, Protocol):
    """A pool that caches freed memory, for each stream of its own, and has private pools."""

    def take(self, nbytes: int, stream: int = 0, private: int = 0) -> Block | None:
        """Allocate at least nbytes for a stream, of a private pool if one is named; None without room."""

    def largest_free(self, nbytes: int, private: int = 0) -> int:
        """Return the size of the largest piece that is free for such a request."""

    def empty_cache(self) -> None:
        """Release free segments."""


def serve(requests: Sequence[Request], pool: OnlinePool, capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Serve requests until one finds no room."""
    held: dict[int, Block] = {}
    offsets: list[int | None] = []
    deltas: list[int] = []
    in_use = most_searched = 0
    keeping, addressed = pool if isinstance(pool, KeepingPool) else None, pool.addressed
    for position, (key, asked, resizes, searches, stream, private) in enumerate(requests):
        if searches:
            assert keeping is not None
            most_searched = max(most_searched, _searched(keeping, asked or 0, granule_bytes))
            offsets.append(None)
            deltas.append(0)
            continue
        if asked is None:
            block = held.pop(key)
            pool.free(block)
            delta = -block.nbytes
        else:
            nbytes = round_up(asked, granule_bytes)
            before = held[key].nbytes if resizes else 0
            wanted = max(0, nbytes - before)
            taken = pool.take(wanted) if keeping is None else keeping.take(wanted, stream, private)
            if taken is None:
                largest = pool.largest_free(wanted) if keeping is None else keeping.largest_free(wanted, private)
                return Overflow(position, tuple(held), capacity_bytes - in_use, largest)
            if nbytes < before:
                pool.free(Block(taken.start, before - nbytes))
            block = held[key] = Block(taken.start, nbytes) if resizes else taken
            delta = block.nbytes - before
        in_use += delta
        offsets.append(block.start if addressed else None)
        deltas.append(delta)
    return Placed(tuple(offsets), tuple(deltas), pool.pool_bytes, 0 < pool.pool_bytes == most_searched)


def _searched(pool: KeepingPool, nbytes: int, granule_bytes: int) -> int:
    """Serve a search; return the memory of the pool if that is a new maximum, else 0."""
    before = pool.pool_bytes
    while nbytes and (block := pool.take(round_up(nbytes, granule_bytes))) is None:
        nbytes //= 2
    if nbytes:
        assert block is not None
        pool.free(block)
    pool.empty_cache()
    return pool.pool_bytes if pool.pool_bytes > before else 0
