"""A measured step of a user's training loop under a plan, as plain data.

All times are seconds since the step began. Kernels are not watched one by one, which would change what runs: what is
known is when the loop came to each tensor that autograd saves or takes, and when it went on from there.
"""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Stretch:
    """Operations of the captured step that ran one after the other between two such moments, by their numbers."""

    operations: range
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """What the loop waited for a copy, or recomputed, before an operation of the captured step."""

    operation: int
    start_s: float
    end_s: float


class Way(Enum):
    """Where the bytes of a copy went."""

    OUT = "offload"
    BACK = "prefetch"


@dataclass(frozen=True, slots=True)
class LiveCopy:
    """Bytes of a storage of the captured step that were copied."""

    way: Way
    storage: int
    extent: range
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Level:
    """What PyTorch had allocated before an operation of the captured step."""

    operation: int
    time_s: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class LiveStep:
    """One step.

    Attributes:
        device: a card's name, or `cpu`.
        number: which of the loop's steps it was, from 1.
        seconds: forward and backward, without what the loop does before and after.
        peak_bytes: the most that PyTorch had allocated since the step before began; None where there is no GPU.
        offloaded_bytes, fetched_bytes: that were moved.
        stretches, pauses, copies, memory: in their order, where they were asked for; memory on a GPU alone.
        snapshot: of PyTorch's allocator, pickled; None where none was asked for, or there is none.
    """

    device: str
    number: int
    seconds: float
    peak_bytes: int | None
    offloaded_bytes: int
    fetched_bytes: int
    stretches: tuple[Stretch, ...] = ()
    pauses: tuple[Pause, ...] = ()
    copies: tuple[LiveCopy, ...] = ()
    memory: tuple[Level, ...] = ()
    snapshot: bytes | None = None
