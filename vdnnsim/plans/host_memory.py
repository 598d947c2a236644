"""Host memory that the copies of a plan take, pinned or not, walked in issue order.

An offload allocates the bytes that it moves unless they are there, a prefetch frees them unless it keeps the copy.
Systems of the papers pin what is in use; PyTorch keeps pinned blocks of powers of two (`vdnnsim.memory.process`).
"""

from dataclasses import dataclass
from enum import Enum

from vdnnsim.memory.process import PinnedBlocks
from vdnnsim.plans.operations import Offload, Prefetch
from vdnnsim.plans.pieces import Pieces
from vdnnsim.plans.training_plan import TrainingPlan


class Pool(Enum):
    """The memories that a plan can overflow; pinned memory is a part of the host's."""

    DEVICE = "GPU memory"
    PINNED = "pinned host memory"
    HOST = "host memory"


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Host memory of one GPU.

    Attributes:
        pinned_bytes: that may be pinned.
        process_bytes: that the process takes besides pinned memory.
        of_pytorch: whether blocks are pinned as by PyTorch.
    """

    host_bytes: int
    pinned_bytes: int
    process_bytes: int
    of_pytorch: bool


@dataclass(frozen=True, slots=True)
class HostOverflow:
    """The first copy that does not fit: the position of its offload, 0 for a buffer given on the host."""

    pool: Pool
    operation: int
    buffer: int
    requested_bytes: int
    free_bytes: int
    capacity_bytes: int
    held: tuple[tuple[int, int], ...]


class _PinnedBytes:
    """Pinned memory that counts bytes, with the methods of `PinnedBlocks`."""

    def __init__(self) -> None:
        self.taken_bytes = 0

    def missing_bytes(self, *sizes: int) -> int:
        return sum(sizes)

    def take(self, nbytes: int) -> None:
        self.taken_bytes += nbytes

    def free(self, nbytes: int) -> None:
        self.taken_bytes -= nbytes


_Part = tuple[int, int, int]
"""A piece of a copy of a buffer: the buffer, the number of the copy, the number of the piece."""


def walk_host(plan: TrainingPlan, limits: HostLimits, pieces: Pieces) -> int | HostOverflow:
    """Return the peak of pinned host memory, or the first overflow."""
    host = _Host(limits, pieces)
    overflow: HostOverflow | None = None
    for buffer, each in enumerate(plan.buffers):
        if each.given_on_host:
            overflow = overflow or host.take(0, buffer)
    for position, operation in enumerate(plan.operations):
        if overflow is not None:
            return overflow
        if type(operation) is Offload:
            overflow = host.take(position, operation.buffer, operation.copy, operation.extent)
        elif type(operation) is Prefetch and not operation.keeps_copy:
            host.free(operation)
    return overflow or host.peak_bytes


class _Host:
    def __init__(self, limits: HostLimits, pieces: Pieces) -> None:
        self._limits = limits
        self._pieces = pieces
        self._pinned = PinnedBlocks() if limits.of_pytorch else _PinnedBytes()
        self._held: dict[_Part, int] = {}
        self.peak_bytes = 0

    def take(self, operation: int, buffer: int, copy: int = 0, extent: range | None = None) -> HostOverflow | None:
        """Allocate the bytes of a copy that are not there; return the overflow, if any."""
        ranges, pinned, limits = self._pieces.ranges(buffer), self._pinned, self._limits
        copied = {(buffer, copy, each): len(ranges[each]) for each in self._pieces.covered(buffer, extent)}
        new = [nbytes for each, nbytes in copied.items() if each not in self._held]
        missing = pinned.missing_bytes(*new)
        for pool, capacity, others in (
            (Pool.PINNED, limits.pinned_bytes, 0),
            (Pool.HOST, limits.host_bytes, limits.process_bytes),
        ):
            free = max(0, capacity - others - pinned.taken_bytes)
            if missing > free:
                held = tuple((each, size) for (each, _, _), size in self._held.items())
                return HostOverflow(pool, operation, buffer, missing, free, capacity, held)
        for nbytes in new:
            pinned.take(nbytes)
        self._held |= copied
        self.peak_bytes = max(self.peak_bytes, pinned.taken_bytes)
        return None

    def free(self, copy: Prefetch) -> None:
        for each in self._pieces.covered(copy.buffer, copy.extent):
            self._pinned.free(self._held.pop((copy.buffer, copy.copy, each)))
