"""The recorder of traces: spans, memory changes and the causes of stalls of the compute stream, for any executor.

A stall is the gap between two kernels. Its causes are reported as they happen: a wait for an event, a synchronization
of the host, the pinning of memory. When the next kernel starts, the gap before it is divided among these in order of
time; the rest is the host, which had not issued the kernel yet.

The recorder also asserts that no operation uses a buffer of a copy in flight, which the check of plans excludes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from vdnnsim.plans.operations import (
    Allocate,
    AllocateExtent,
    AllReduce,
    Communicate,
    Compute,
    Offload,
    Prefetch,
    Release,
    ReleaseExtent,
    Stream,
)
from vdnnsim.plans.placement import PlacedChange
from vdnnsim.plans.trace import IterationTrace, MemoryChange, Span, Stall, StallCause
from vdnnsim.plans.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class _Hold:
    until_s: float
    cause: StallCause
    copy: int | None


_Copying = Offload | Prefetch | AllReduce | Communicate


class Recorder:
    """Collects the trace of a plan from events in order of time."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._spans: list[Span] = []
        self._stalls: list[Stall] = []
        self._memory: list[MemoryChange] = []
        self._holds: list[_Hold] = []
        self._kernel_end_s = 0.0
        self._in_flight: dict[int, _Copying] = {}
        self._running: Compute | None = None
        self._running_span = 0
        self._last_copy: dict[Stream, int] = {}
        # By event, the last copy on its stream before it.
        self._copy_before: dict[int, int] = {}

    def kernel(self, operation: int, kernel: Compute, issue_s: float, start_s: float, end_s: float) -> None:
        """A kernel starts, and will end at end_s."""
        for buffer in kernel.reads:
            in_flight = self._in_flight.get(buffer)
            assert in_flight is None or isinstance(in_flight, Offload), f"kernel {operation} reads a buffer in flight"
        for buffer in kernel.writes:
            assert buffer not in self._in_flight, f"kernel {operation} writes under a copy"
        if start_s > self._kernel_end_s:
            self._divide_gap(operation, start_s)
        # The host runs ahead: a hold may concern a later kernel.
        self._holds = [hold for hold in self._holds if hold.until_s > start_s]
        self._running = kernel
        self._kernel_end_s = end_s
        self._running_span = len(self._spans)
        self._spans.append(Span(operation, Stream.COMPUTE, issue_s, start_s, end_s))

    def kernel_ends_at(self, end_s: float) -> None:
        """The kernel that runs will end at another time than it was to."""
        self._kernel_end_s = end_s
        self._spans[self._running_span] = replace(self._spans[self._running_span], end_s=end_s)

    def copy_starts(self, copy: Offload | Prefetch, now_s: float) -> None:
        running = self._running if now_s < self._kernel_end_s else None
        if running is not None:
            assert copy.buffer not in running.writes, f"a copy of buffer {copy.buffer} starts under its writer"
            assert isinstance(copy, Offload) or copy.buffer not in running.reads, "a prefetch starts under a reader"
        self._in_flight[copy.buffer] = copy

    def copy_ends(self, operation: int, copy: Offload | Prefetch, issue_s: float, start_s: float, end_s: float) -> None:
        del self._in_flight[copy.buffer]
        self._last_copy[Stream.MEMORY] = operation
        self._spans.append(Span(operation, Stream.MEMORY, issue_s, start_s, end_s))

    def all_reduce_starts(self, operation: int, all_reduce: AllReduce) -> None:
        for buffer in all_reduce.buffers:
            assert buffer not in self._in_flight, f"exchange {operation} meets a copy"
            self._in_flight[buffer] = all_reduce

    def all_reduce_ends(
        self, operation: int, all_reduce: AllReduce, issue_s: float, start_s: float, end_s: float
    ) -> None:
        for buffer in all_reduce.buffers:
            del self._in_flight[buffer]
        self._last_copy[Stream.COMMUNICATION] = operation
        self._spans.append(Span(operation, Stream.COMMUNICATION, issue_s, start_s, end_s))

    def communication_starts(self, operation: int, communicate: Communicate, now_s: float) -> None:
        """A stream reaches a collective, or a kernel on the communication stream."""
        if communicate.stream is Stream.COMPUTE:
            if now_s > self._kernel_end_s:
                self._divide_gap(operation, now_s)
            self._kernel_end_s = now_s
            self._running = None
            return
        for buffer in set(communicate.writes):
            assert buffer not in self._in_flight, f"collective {operation} meets a copy"
            self._in_flight[buffer] = communicate

    def communication_ends(
        self, operation: int, communicate: Communicate, issue_s: float, start_s: float, end_s: float
    ) -> None:
        """It ends; the compute stream has waited for its own."""
        if communicate.stream is Stream.COMPUTE:
            self._holds.append(_Hold(end_s, StallCause.COMMUNICATION, operation))
        else:
            for buffer in set(communicate.writes):
                del self._in_flight[buffer]
            self._last_copy[communicate.stream] = operation
        self._spans.append(Span(operation, communicate.stream, issue_s, start_s, end_s))

    def memory_change(self, change: PlacedChange, now_s: float) -> None:
        """The compute stream reaches an allocation or release."""
        in_flight = self._in_flight.get(change.buffer)
        assert in_flight is None or self._lie_apart(change.operation, in_flight), (
            f"buffer {change.buffer} changes under a copy"
        )
        self._memory.append(MemoryChange(now_s, change.operation, change.buffer, change.delta_bytes, change.offset))

    def event_recorded(self, event: int, stream: Stream) -> None:
        if stream in self._last_copy:
            self._copy_before[event] = self._last_copy[stream]

    def event_waited(self, event: int, stream: Stream, now_s: float) -> None:
        copy = self._copy_before.get(event)
        if stream is Stream.COMPUTE and copy is not None:
            self._holds.append(_Hold(now_s, self._copy_cause(copy), copy))

    def host_synchronized(self, streams: tuple[Stream, ...], now_s: float) -> None:
        """The host has waited for streams, and so for their last copies."""
        for stream in streams:
            if stream in self._last_copy:
                copy = self._last_copy[stream]
                self._holds.append(_Hold(now_s, self._copy_cause(copy), copy))

    def host_pins(self, until_s: float) -> None:
        self._holds.append(_Hold(until_s, StallCause.PINNING, None))

    def trace(self, *, iteration_s: float, pool_bytes: int, host_bytes: int, host_issue_s: float) -> IterationTrace:
        return IterationTrace(
            plan=self._plan,
            iteration_s=iteration_s,
            spans=tuple(sorted(self._spans, key=lambda span: (span.start_s, span.operation))),
            stalls=(*self._stalls, *self._behind_kernels()),
            memory=tuple(self._memory),
            pool_bytes=pool_bytes,
            host_bytes=host_bytes,
            host_issue_s=host_issue_s,
        )

    def _behind_kernels(self) -> Iterator[Stall]:
        """Yield the wait behind the last kernel, where the host updates."""
        last = max(self._spans, key=lambda span: span.end_s, default=None)
        operation = self._plan.operations[last.operation] if last else None
        if last and isinstance(operation, Communicate) and operation.collective and operation.collective.is_of_host:
            yield Stall(self._kernel_end_s, last.end_s, StallCause.ON_HOST, last.operation, last.operation)

    def _lie_apart(self, change: int, in_flight: _Copying) -> bool:
        """Return whether a change of an extent and a copy in flight concern different bytes, or are of one stream."""
        operation = self._plan.operations[change]
        if isinstance(operation, Allocate | Release):
            return operation.stream is not Stream.COMPUTE
        return (
            isinstance(operation, AllocateExtent | ReleaseExtent)
            and isinstance(in_flight, Offload | Prefetch)
            and in_flight.extent is not None
            and (operation.extent.stop <= in_flight.extent.start or in_flight.extent.stop <= operation.extent.start)
        )

    def _copy_cause(self, copy: int) -> StallCause:
        match self._plan.operations[copy]:
            case Offload():
                return StallCause.OFFLOAD
            case Prefetch(on_demand=True):
                return StallCause.ON_DEMAND
            case AllReduce():
                return StallCause.AGGREGATION
            case Communicate(stream=Stream.SEND | Stream.RECEIVE):
                return StallCause.PIPELINE
            case Communicate(stream=Stream.TO_HOST):
                return StallCause.OFFLOAD
            case Communicate(stream=Stream.FROM_HOST):
                return StallCause.PREFETCH
            case Communicate():
                return StallCause.COMMUNICATION
            case _:
                return StallCause.PREFETCH

    def _divide_gap(self, blocked: int, start_s: float) -> None:
        cursor = self._kernel_end_s
        for hold in sorted(self._holds, key=lambda hold: hold.until_s):
            until_s = min(hold.until_s, start_s)
            if until_s > cursor:
                self._stalls.append(Stall(cursor, until_s, hold.cause, blocked, hold.copy))
                cursor = until_s
        if start_s > cursor:
            self._stalls.append(Stall(cursor, start_s, StallCause.HOST, blocked, None))
