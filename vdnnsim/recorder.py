"""Writes down what happens: spans, memory changes, and why the compute stream stood still; for every executor.

A stall is the gap between two kernels. Whoever holds the compute stream back says so while it happens (`hold`): until
when, why, and for which copy. When the next kernel starts, its gap is divided among those reasons in the order of
their time; what nobody claims is the host that had not issued the kernel yet.

It also asserts that no kernel, copy or release touches a buffer that a copy or kernel of the other stream is using:
copies in flight are remembered, and whatever meets one is a bug of the plan check.
"""

from dataclasses import dataclass

from vdnnsim.plan.operations import Compute, Offload, Prefetch, Stream
from vdnnsim.plan.placement import PlacedChange
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.trace import MemoryChange, Span, Stall, StallCause


@dataclass(frozen=True, slots=True)
class _Hold:
    until_s: float
    cause: StallCause
    copy: int | None


class Recorder:
    """Collects the parts of a trace in the order in which they happen."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.stalls: list[Stall] = []
        self.memory: list[MemoryChange] = []
        self._holds: list[_Hold] = []
        self._kernel_end_s = 0.0
        self._in_flight: dict[int, Offload | Prefetch] = {}
        self._running: Compute | None = None

    def hold(self, until_s: float, cause: StallCause, copy: int | None) -> None:
        """Say that the compute stream could not go on before a moment, because of a copy or of the host."""
        self._holds.append(_Hold(until_s, cause, copy))

    def kernel(self, operation: int, kernel: Compute, issue_s: float, start_s: float, end_s: float) -> None:
        """A kernel starts on the compute stream and will end at end_s."""
        for buffer in kernel.reads:
            assert not isinstance(self._in_flight.get(buffer), Prefetch), f"kernel {operation} reads under a prefetch"
        for buffer in kernel.writes:
            assert buffer not in self._in_flight, f"kernel {operation} writes under a copy"
        if start_s > self._kernel_end_s:
            self._divide_gap(operation, start_s)
        # The host runs ahead, so a hold may concern a kernel after this one.
        self._holds = [hold for hold in self._holds if hold.until_s > start_s]
        self._running = kernel
        self._kernel_end_s = end_s
        self.spans.append(Span(operation, Stream.COMPUTE, issue_s, start_s, end_s))

    def copy_starts(self, copy: Offload | Prefetch, now_s: float) -> None:
        """A copy starts on the memory stream."""
        running = self._running if now_s < self._kernel_end_s else None
        if running is not None:
            assert copy.buffer not in running.writes, f"a copy of buffer {copy.buffer} starts under its writer"
            assert isinstance(copy, Offload) or copy.buffer not in running.reads, "a prefetch starts under a reader"
        self._in_flight[copy.buffer] = copy

    def copy_ends(self, operation: int, copy: Offload | Prefetch, issue_s: float, start_s: float, end_s: float) -> None:
        """A copy ends."""
        del self._in_flight[copy.buffer]
        self.spans.append(Span(operation, Stream.MEMORY, issue_s, start_s, end_s))

    def memory_change(self, change: PlacedChange, now_s: float) -> None:
        """The compute stream reaches an allocation or release."""
        assert change.buffer not in self._in_flight, f"buffer {change.buffer} changes under a copy"
        self.memory.append(MemoryChange(now_s, change.operation, change.buffer, change.delta_bytes, change.offset))

    def _divide_gap(self, blocked: int, start_s: float) -> None:
        cursor = self._kernel_end_s
        for hold in sorted(self._holds, key=lambda hold: hold.until_s):
            until_s = min(hold.until_s, start_s)
            if until_s > cursor:
                self.stalls.append(Stall(cursor, until_s, hold.cause, blocked, hold.copy))
                cursor = until_s
        if start_s > cursor:
            self.stalls.append(Stall(cursor, start_s, StallCause.HOST, blocked, None))


def copy_cause(plan: TrainingPlan, copy: int) -> StallCause:
    """The cause of a stall that a copy brings about."""
    match plan.operations[copy]:
        case Offload():
            return StallCause.OFFLOAD
        case Prefetch(on_demand=True):
            return StallCause.ON_DEMAND
        case _:
            return StallCause.PREFETCH
