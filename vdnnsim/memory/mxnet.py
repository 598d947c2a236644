"""MXNet's memory: storages that buffers share by a static plan, and that are never freed.

A request takes a free storage: the smallest that is large enough, if it is at most 16 times as large; else the largest
that is too small, if it is at least a sixteenth, which grows; else a new one. After planning, each storage is a
cudaMalloc of its final size, the largest first (`vdnnsim.memory.cuda_malloc`): that is `pool_bytes`, while `deltas`
count buffers. An overflow names the request with which the storages exceed the capacity.

Sources: github.com/dmlc/nnvm at 2e3561500de99a0c173f3bc7b1a6c2b31435d6d9, src/pass/plan_memory.cc
(GraphAllocator::Request and Release, NNVM_EXEC_MATCH_RANGE 16); for what is allocated github.com/apache/mxnet at
e4b0a0b746d92ce5807f0cd67cc19ebe2c1245a0, src/executor/graph_executor.cc (InitDataEntryMemory). There only the maps of a
graph and their gradients go through the plan; here all buffers do. For buffers that live throughout it makes no
difference, since nothing is free yet when they are allocated; dW and workspaces share storages as maps do.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import ClassVar, Final

from vdnnsim.memory.cuda_malloc import Driver
from vdnnsim.memory.online import Block, serve
from vdnnsim.memory.requests import UNLIMITED_BYTES, Overflow, Placed, Request, round_up

MATCH_RANGE: Final = 16


def place_mxnet(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Plan all requests, then allocate the storages."""
    # Storages are matched by requested bytes, not by granules.
    plan = _Storages(granule_bytes)
    answer = serve(requests, plan, capacity_bytes, 1)
    if plan.pool_bytes <= capacity_bytes:
        return answer
    # The first growth with which the storages exceed the capacity.
    numbers = range(len(plan.growths) + 1)
    too_many = bisect_right(numbers, capacity_bytes, key=lambda number: _driver(plan.growths[:number]).handed_out_bytes)
    left_bytes = _driver(plan.growths[: too_many - 1], capacity_bytes).untaken_bytes
    return serve(requests, _Storages(granule_bytes, too_many - 1, left_bytes), capacity_bytes, 1)


class _Storages:
    """The plan; the start of a block is the number of its storage.

    Args:
        granule_bytes: to which sizes are rounded when they are allocated.
        growths: limit of their number; None without one.
        left_bytes: free memory of the GPU after them.

    Attributes:
        growths: a storage and its new size, whenever one is made or enlarged.
    """

    addressed: ClassVar[bool] = False

    def __init__(self, granule_bytes: int, growths: int | None = None, left_bytes: int = 0) -> None:
        self._granule_bytes = granule_bytes
        self._growths = growths
        self._left_bytes = left_bytes
        self.growths: list[tuple[int, int]] = []
        self._sizes: list[int] = []
        self._free: list[tuple[int, int]] = []

    @property
    def pool_bytes(self) -> int:
        return _driver(self.growths).handed_out_bytes

    def take(self, nbytes: int) -> Block | None:
        """Return a storage for a request; None beyond the limit of growths."""
        found = bisect_left(self._free, (nbytes,))
        size = round_up(nbytes, self._granule_bytes)
        if found < len(self._free) and self._free[found][0] <= nbytes * MATCH_RANGE:
            return Block(self._free.pop(found)[1], size)
        if len(self.growths) == self._growths:
            return None
        if self._grows(nbytes):
            _, storage = self._free.pop(found - 1)
            self._sizes[storage] = nbytes
        else:
            storage = len(self._sizes)
            self._sizes.append(nbytes)
        self.growths.append((storage, size))
        return Block(storage, size)

    def free(self, block: Block) -> None:
        insort(self._free, (self._sizes[block.start], block.start))

    def largest_free(self, nbytes: int) -> int:
        """Return the larger of the storage that would grow and the free memory."""
        return max(self._grows(nbytes), self._left_bytes)

    def _grows(self, nbytes: int) -> int:
        """Return the size of the storage that would grow for a request; 0 for a new one."""
        found = bisect_left(self._free, (nbytes,))
        size = self._free[found - 1][0] if found else 0
        return size if size >= nbytes // MATCH_RANGE else 0


def _driver(growths: Sequence[tuple[int, int]], capacity_bytes: int = UNLIMITED_BYTES) -> Driver:
    """Return the driver after allocation of all storages at their last size, the largest first."""
    driver = Driver(capacity_bytes)
    for size in sorted(dict(growths).values(), reverse=True):
        driver.take(size)
    return driver
