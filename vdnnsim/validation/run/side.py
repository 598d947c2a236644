"""One side of a row: the numbers of an iteration, read in the same way from a measured and from a simulated trace."""

from dataclasses import dataclass, replace
from itertools import accumulate

from vdnnsim.analysis.timing import stall_seconds
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import Overflow
from vdnnsim.plans.operations import Offload, Stream
from vdnnsim.plans.placement import MemoryLimits, needed_bytes, place_repeatedly
from vdnnsim.plans.trace import IterationTrace, MemoryCount, StallCause
from vdnnsim.plans.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class Side:
    """One iteration, on a device or in the simulator.

    Attributes:
        stall_by_cause: time in which the compute stream stood still before or between kernels, longest first.
        offloaded_bytes: bytes of the copies to the host that ran.
    """

    trace: IterationTrace
    peaks: MemoryCount
    iteration_s: float
    stall_by_cause: tuple[tuple[StallCause, float], ...]
    offloaded_bytes: int

    @property
    def stall_s(self) -> float:
        """Stalls of all causes."""
        return sum((seconds for _, seconds in self.stall_by_cause), 0.0)

    @property
    def copy_stall_s(self) -> float:
        """What of it was spent waiting for copies."""
        copies = (StallCause.OFFLOAD, StallCause.PREFETCH, StallCause.ON_DEMAND)
        return sum((seconds for cause, seconds in self.stall_by_cause if cause in copies), 0.0)

    @classmethod
    def of(cls, trace: IterationTrace, peaks: MemoryCount) -> "Side":
        """Read a trace."""
        plan = trace.plan
        copies = [plan.operations[span.operation] for span in trace.spans_on(Stream.MEMORY)]
        return cls(
            trace=trace,
            peaks=peaks,
            iteration_s=trace.iteration_s,
            stall_by_cause=stall_seconds(trace),
            offloaded_bytes=sum(plan.copied_bytes(copy) for copy in copies if isinstance(copy, Offload)),
        )


def predicted_peaks(plan: TrainingPlan, limits: MemoryLimits, *, caching_allocator: bool, times: int) -> MemoryCount:
    """Return what a plan will ask for, and what PyTorch's caching allocator will make of it where it is in use.

    Of a plan that is executed so many times in a row; the allocator's numbers are None where even its model has no room
    in the memory that it finds.
    """
    requested_bytes = needed_bytes(plan)
    if not caching_allocator:
        return MemoryCount(requested_bytes, None, None)
    placed = place_repeatedly(plan, replace(limits, model=MemoryModel.PYTORCH), times)
    if isinstance(placed, Overflow):
        return MemoryCount(requested_bytes, None, None)
    return MemoryCount(requested_bytes, max(accumulate(placed.deltas), default=0), placed.pool_bytes)
