"""Host memory that a plan takes for its copies, walked in issue order.

An offload takes the bytes that it moves unless it has them, a prefetch gives them back unless it keeps the copy.
Systems of the papers pin what is in use; PyTorch pins blocks of powers of two and keeps them
(`vdnnsim.memory.process`).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from vdnnsim.memory.process import PinnedBlocks
from vdnnsim.plan.operations import Offload, Prefetch
from vdnnsim.plan.pieces import Pieces
from vdnnsim.plan.training_plan import TrainingPlan


class Budget(Enum):
    """What of the host a copy can overflow."""

    PINNED = "pinned host memory"
    HOST = "host memory"


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What there is of the host for one GPU.

    Attributes:
        host_bytes: of its memory.
        pinned_bytes: of it that may be pinned.
        process_bytes: that the process holds beside what it pins.
        of_pytorch: whether it pins as PyTorch does.
    """

    host_bytes: int
    pinned_bytes: int
    process_bytes: int
    of_pytorch: bool


@dataclass(frozen=True, slots=True)
class HostOverflow:
    """An offload that found no room.

    Attributes:
        operation: its position in the plan.
        held: bytes of the copies on the host by buffer, as they were asked for.
    """

    budget: Budget
    operation: int
    requested_bytes: int
    free_bytes: int
    capacity_bytes: int
    held: tuple[tuple[int, int], ...]


class _Pinned(Protocol):
    taken_bytes: int

    def missing_bytes(self, *sizes: int) -> int: ...

    def take(self, nbytes: int) -> None: ...

    def give_back(self, nbytes: int) -> None: ...


class _PinnedBytes:
    """Pinned memory that counts bytes, and gives back what is given back."""

    def __init__(self) -> None:
        self.taken_bytes = 0

    def missing_bytes(self, *sizes: int) -> int:  # as of all that pin
        return sum(sizes)

    def take(self, nbytes: int) -> None:
        self.taken_bytes += nbytes

    def give_back(self, nbytes: int) -> None:
        self.taken_bytes -= nbytes


_COPIES: Final = frozenset({Offload, Prefetch})


def walk_host(plan: TrainingPlan, limits: HostLimits, pieces: Pieces) -> int | HostOverflow:
    """Return the maximum of pinned host memory, or the offload that found no room."""
    pinned: _Pinned = PinnedBlocks() if limits.of_pytorch else _PinnedBytes()
    # By buffer, copy and piece.
    held: dict[tuple[int, int, int], int] = {}
    peak = 0
    for position, operation in enumerate(plan.operations):
        if type(operation) not in _COPIES:
            continue
        match operation:
            case Offload(buffer=buffer, extent=extent, copy=copy):
                ranges = pieces.ranges(buffer)
                coming = {(buffer, copy, each): len(ranges[each]) for each in pieces.covered(buffer, extent)}
                new = [nbytes for each, nbytes in coming.items() if each not in held]
                missing = pinned.missing_bytes(*new)
                for budget, capacity, others in (
                    (Budget.PINNED, limits.pinned_bytes, 0),
                    (Budget.HOST, limits.host_bytes, limits.process_bytes),
                ):
                    free = max(0, capacity - others - pinned.taken_bytes)
                    if missing > free:
                        copies = tuple((each, size) for (each, _, _), size in held.items())
                        return HostOverflow(budget, position, missing, free, capacity, copies)
                for nbytes in new:
                    pinned.take(nbytes)
                held |= coming
                peak = max(peak, pinned.taken_bytes)
            case Prefetch(buffer=buffer, keeps_copy=False, extent=extent, copy=copy):
                for each in pieces.covered(buffer, extent):
                    pinned.give_back(held.pop((buffer, copy, each)))
            case _:
                pass
    return peak
