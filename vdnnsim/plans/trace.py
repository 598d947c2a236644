"""Traces, the common result of all executors: the events of one iteration.

A trace refers to its plan by position: `Span.operation` indexes `plan.operations`, `MemoryChange.buffer` indexes
`plan.buffers`. All times are seconds since the host began to issue the plan.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from operator import add, sub

from vdnnsim.hardware.topology import Hop
from vdnnsim.plans.operations import Compute, Offload, Prefetch, Stream
from vdnnsim.plans.training_plan import TrainingPlan


class StallCause(Enum):
    """Why the compute stream was idle before or between kernels."""

    OFFLOAD = "waits for an offload"
    PREFETCH = "waits for a prefetch"
    ON_DEMAND = "waits for a fetch on demand"
    AGGREGATION = "waits for gradients of other GPUs"
    COMMUNICATION = "waits for a collective"
    PIPELINE = "waits for another stage"
    ON_HOST = "waits for the update on the host"
    PINNING = "host pins memory"
    HOST = "waits for the host to issue"


@dataclass(frozen=True, slots=True)
class Span:
    """One operation that takes time on a stream: a kernel or a copy.

    Attributes:
        operation: its position in the plan.
        issue_s: when the host had issued it.
    """

    operation: int
    stream: Stream
    issue_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Stall:
    """An interval in which the compute stream waited, and for what.

    Attributes:
        blocked: position in the plan of the kernel that waited.
        waited_for: position of the copy that it waited for; None for the host.
    """

    start_s: float
    end_s: float
    cause: StallCause
    blocked: int
    waited_for: int | None


@dataclass(frozen=True, slots=True)
class MemoryCount:
    """Device memory in bytes at three levels: requested, and allocated and reserved by PyTorch, None without it."""

    requested_bytes: int
    allocated_bytes: int | None
    reserved_bytes: int | None

    def __add__(self, other: "MemoryCount") -> "MemoryCount":
        return self._with(other, add)

    def __sub__(self, other: "MemoryCount") -> "MemoryCount":
        return self._with(other, sub)

    def largest(self, other: "MemoryCount") -> "MemoryCount":
        return self._with(other, max)

    def _with(self, other: "MemoryCount", combine: Callable[[int, int], int]) -> "MemoryCount":
        def known(one: int | None, another: int | None) -> int | None:
            return None if one is None or another is None else combine(one, another)

        return MemoryCount(
            combine(self.requested_bytes, other.requested_bytes),
            known(self.allocated_bytes, other.allocated_bytes),
            known(self.reserved_bytes, other.reserved_bytes),
        )


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """One allocation (delta above zero) or release (below) of device memory, rounded as the pool rounds.

    Attributes:
        offset: address in the pool; None under a model without addresses.
    """

    time_s: float
    operation: int
    buffer: int
    delta_bytes: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class IterationTrace:
    """One iteration: its kernels and copies in order of their start on each stream, stalls, and memory over time.

    Attributes:
        iteration_s: from the first issue until host and streams are done.
        memory: in the order in which the compute stream reaches the operations.
        pool_bytes: peak of device memory, gaps included; `ideal` has none.
        host_bytes: peak of pinned host memory.
        host_issue_s: time in which the host issued operations or pinned memory.
        peaks_in_search: whether only a search for convolution algorithms reached the peak.
    """

    plan: TrainingPlan
    iteration_s: float
    spans: tuple[Span, ...] = field(repr=False)
    stalls: tuple[Stall, ...] = field(repr=False)
    memory: tuple[MemoryChange, ...] = field(repr=False)
    pool_bytes: int
    host_bytes: int
    host_issue_s: float
    peaks_in_search: bool = False

    def spans_on(self, stream: Stream) -> tuple[Span, ...]:
        return tuple(span for span in self.spans if span.stream is stream)

    @property
    def kernels(self) -> tuple[tuple[Span, Compute], ...]:
        found = ((span, self.plan.operations[span.operation]) for span in self.spans)
        return tuple((span, kernel) for span, kernel in found if isinstance(kernel, Compute))

    @property
    def copies(self) -> tuple[tuple[Span, Offload | Prefetch], ...]:
        found = ((span, self.plan.operations[span.operation]) for span in self.spans)
        return tuple((span, copy) for span, copy in found if isinstance(copy, Offload | Prefetch))


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """The rate of a link in one direction from a time on, and the number of copies that share it."""

    time_s: float
    hop: Hop
    bytes_per_s: float
    copies: int


@dataclass(frozen=True, slots=True)
class ServerTrace:
    """One iteration of all GPUs of a server, begun at the same time.

    Attributes:
        loads: every change of the rate of a link, in order of time; empty for one GPU on a link of its own.
    """

    gpus: tuple[IterationTrace, ...]
    loads: tuple[LinkLoad, ...] = field(default=(), repr=False)

    @property
    def iteration_s(self) -> float:
        """Time until the last GPU is done."""
        return max(trace.iteration_s for trace in self.gpus)
