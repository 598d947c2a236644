"""MXNet's storages: the static plan of its graph decides which buffers share one, and none is ever given back.

A request takes a free storage: the smallest that is large enough, if it is at most 16 times as large; else the largest
that is too small, if it is at least a sixteenth, which grows; else a new one. Once the whole plan is made, each storage
is a cudaMalloc at the size to which it grew, the largest first (`vdnnsim.memory.cuda_malloc`): that is `pool_bytes`,
while `deltas` count what buffers take. Where it is more than there is, the request is named with which it becomes so.

Sources: github.com/dmlc/nnvm at 2e3561500de99a0c173f3bc7b1a6c2b31435d6d9, src/pass/plan_memory.cc
(GraphAllocator::Request and Release, NNVM_EXEC_MATCH_RANGE 16); for what is allocated github.com/apache/mxnet at
e4b0a0b746d92ce5807f0cd67cc19ebe2c1245a0, src/executor/graph_executor.cc (InitDataEntryMemory). There only the maps of a
graph and their gradients go through the plan; here all buffers do. What lives throughout is asked for before anything
is free and keeps what it has, so for it that is the same; dW and workspaces that come and go take storages as maps do.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vdnnsim.memory.cuda_malloc import footprint_bytes, untaken_bytes
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up

MATCH_RANGE: Final = 16


def place_mxnet(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Plan all requests, then allocate what the plan needs."""
    storages = _Storages()
    held: dict[int, tuple[int, int]] = {}
    deltas: list[int] = []
    for position, request in enumerate(requests):
        if request.nbytes is None:
            storage, delta = held.pop(request.key)
            storages.release(storage)
            deltas.append(-delta)
            continue
        delta = round_up(request.nbytes, granule_bytes)
        held[request.key] = storages.request(position, request.nbytes), delta
        deltas.append(delta)
    sizes = [(growth.storage, round_up(growth.nbytes, granule_bytes)) for growth in storages.growths]
    pool_bytes = _footprint(sizes)
    if pool_bytes <= capacity_bytes:
        return Placed((None,) * len(deltas), tuple(deltas), pool_bytes)
    # One by one the storages come to more than there is; this is the growth that makes them do so.
    numbers = range(len(sizes) + 1)
    too_many = bisect_right(numbers, capacity_bytes, key=lambda number: _footprint(sizes[:number]))
    untaken = untaken_bytes(capacity_bytes, _footprint(sizes[: too_many - 1]))
    growth = storages.growths[too_many - 1]
    return Overflow(
        position=growth.position,
        held=_held(requests[: growth.position]),
        free_bytes=capacity_bytes - sum(deltas[: growth.position]),
        largest_free_bytes=max(growth.before_bytes, untaken),
    )


@dataclass(frozen=True, slots=True)
class _Growth:
    """A storage as the request at a position made or enlarged it."""

    position: int
    storage: int
    before_bytes: int
    nbytes: int


class _Storages:
    """The plan as it is made.

    Attributes:
        growths: in the order of the requests.
    """

    def __init__(self) -> None:
        self.growths: list[_Growth] = []
        self._sizes: list[int] = []
        self._free: list[tuple[int, int]] = []

    def request(self, position: int, nbytes: int) -> int:
        """Return the storage for a request."""
        found = bisect_left(self._free, (nbytes,))
        if found < len(self._free) and self._free[found][0] <= nbytes * MATCH_RANGE:
            return self._free.pop(found)[1]
        if found and self._free[found - 1][0] >= nbytes // MATCH_RANGE:
            before_bytes, storage = self._free.pop(found - 1)
            self._sizes[storage] = nbytes
        else:
            before_bytes, storage = 0, len(self._sizes)
            self._sizes.append(nbytes)
        self.growths.append(_Growth(position, storage, before_bytes, nbytes))
        return storage

    def release(self, storage: int) -> None:
        """Let others have a storage."""
        insort(self._free, (self._sizes[storage], storage))


def _footprint(sizes: Sequence[tuple[int, int]]) -> int:
    """Return what storages take of a GPU; the size of each is the last one that is given for it."""
    return footprint_bytes(Counter(dict(sizes).values()))


def _held(requests: Sequence[Request]) -> tuple[int, ...]:
    held: dict[int, None] = {}
    for request in requests:
        if request.nbytes is None:
            del held[request.key]
        else:
            held[request.key] = None
    return tuple(held)
