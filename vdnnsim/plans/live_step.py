"""A measured step of a user's training loop under a plan, as plain data.

All times are seconds since the step began. Kernels are not timed one by one, which would change the step: known are
the times at which the loop packs and unpacks each saved tensor.
"""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive operations of the captured step between two such times, by their numbers."""

    operations: range
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait for a copy, or a recomputation, before an operation of the captured step."""

    operation: int
    start_s: float
    end_s: float


class Way(Enum):
    """The direction of a copy."""

    OUT = "offload"
    BACK = "prefetch"


@dataclass(frozen=True, slots=True)
class LiveCopy:
    """A copy of some bytes of a storage of the captured step."""

    way: Way
    storage: int
    extent: range
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Level:
    """Bytes that PyTorch had allocated before an operation of the captured step."""

    operation: int
    time_s: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class LiveStep:
    """One step.

    Attributes:
        device: name of the GPU, or `cpu`.
        number: of the step in the loop, from 1.
        peak_bytes: allocated by PyTorch since the step before began; None without a GPU.
        stretches, pauses, copies, memory: in order, if they were recorded; memory only on a GPU.
        snapshot: of PyTorch's allocator, pickled, if one was taken.
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
