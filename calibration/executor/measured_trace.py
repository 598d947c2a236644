"""Trace of an executed plan from the marks that the host logged while it issued the plan.

Times are computed in the order of issue, in which whatever an operation waits for comes before it; then all operations
go to the recorder in the order of their times.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from calibration.devices.interface import Interval, Mark
from vdnnsim.errors import DeviceError
from vdnnsim.plans import operations
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.order import NOTHING, StreamOrder
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.recorder import Recorder
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.units import format_seconds

_ENGINES_APART_S: Final = 10e-6
_FLOAT32_STEP: Final = 2.0**-23


def clock_noise_s(time_s: float) -> float:
    """Return by how much an operation may seem to precede what it waited for, at a time since the clock started.

    CUDA resolves the time between two events to about half a microsecond (cudaEventElapsedTime), so two such times are
    off by one microsecond at most. How far the clocks of compute and copy engines agree is not documented: ten
    microseconds are assumed. The time is a 32-bit float of milliseconds, with steps of at most 2^-23 of it: rounding
    adds one step, a microsecond after 8.4 s.
    """
    return _ENGINES_APART_S + _FLOAT32_STEP * time_s


@dataclass(slots=True)
class IssueLog:
    """Log of the host, by position of the operation in the plan.

    Attributes:
        intervals, issue_s: of kernels and copies.
        marks: of a stream at an event, an allocation or a release, from the start of the clock to the last operation
            that takes time.
    """

    intervals: dict[int, Interval] = field(default_factory=dict)
    issue_s: dict[int, float] = field(default_factory=dict)
    marks: dict[int, Mark] = field(default_factory=dict)
    host_issue_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Record:
    """A call of the recorder."""

    time_s: float
    position: int
    call: Callable[[], None]


def trace_of(plan: TrainingPlan, log: IssueLog, placement: Placement, iteration_s: float) -> IterationTrace:
    """Return the trace of an iteration with the allocations that were really made.

    Raises:
        DeviceError: by the device's clocks an operation came long before what it waited for.
    """
    recorder = Recorder(plan)
    records = list(_records(plan, log, placement, recorder))
    for record in sorted(records, key=lambda each: (each.time_s, each.position)):
        record.call()
    return recorder.trace(
        iteration_s=max([iteration_s, *(each.time_s for each in records)]),
        pool_bytes=placement.pool_bytes,
        host_bytes=placement.host_bytes,
        host_issue_s=log.host_issue_s,
    )


class _Streams:
    """Progress of each stream; moves a time that lies before its cause, by as much as clocks may differ."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self.order = StreamOrder()
        # By position, when a stream was done with the operation.
        self._done_s = {NOTHING: 0.0}

    def at(self, stream: Stream, time_s: float, position: int) -> float:
        """Let a stream reach an operation at a time; return the corrected time.

        Raises:
            DeviceError: it is so much earlier than what it waited for that the device's clocks cannot be compared.
        """
        reached_s = self.reached_s(stream)
        if reached_s - time_s > clock_noise_s(reached_s):
            raise DeviceError(self._disagreement(position, reached_s - time_s, clock_noise_s(reached_s)))
        self._done_s[position] = max(reached_s, time_s)
        self.order.run(stream, position)
        return self._done_s[position]

    def _disagreement(self, position: int, early_s: float, noise_s: float) -> str:
        plan = self._plan
        name = describe(plan.operations[position], plan.buffer_names, plan.layers)
        return (
            f"{plan.policy}: the device's clocks disagree: it says that operation {position} ({name}) came "
            f"{format_seconds(early_s)} before what it waited for, expected at most {format_seconds(noise_s)}, "
            "so the order of operations is unknown; run the same command again"
        )

    def reached_s(self, stream: Stream) -> float:
        return max(self._done_s[position] for position in self.order.reach(stream).values())


def _records(plan: TrainingPlan, log: IssueLog, placement: Placement, recorder: Recorder) -> Iterator[_Record]:
    streams = _Streams(plan)
    for position, operation in enumerate(plan.operations):
        match operation:
            case operations.Compute():
                issue_s, start_s, end_s = _span(streams, Stream.COMPUTE, log, position)
                yield _Record(start_s, position, partial(recorder.kernel, position, operation, issue_s, start_s, end_s))
            case operations.Offload() | operations.Prefetch():
                issue_s, start_s, end_s = _span(streams, Stream.MEMORY, log, position)
                yield _Record(start_s, position, partial(recorder.copy_starts, operation, start_s))
                yield _Record(
                    end_s, position, partial(recorder.copy_ends, position, operation, issue_s, start_s, end_s)
                )
            case (
                operations.Allocate() | operations.AllocateExtent() | operations.Release() | operations.ReleaseExtent()
            ):
                mark = log.marks.get(position)
                if mark is not None:
                    streams.at(Stream.COMPUTE, mark.time_s, position)
                # The Release of an alias frees nothing and so is no change.
                if position in placement.changes:
                    now_s = streams.reached_s(Stream.COMPUTE)
                    change = placement.changes[position]
                    yield _Record(now_s, position, partial(recorder.memory_change, change, now_s))
            case operations.RecordEvent(event=event, stream=stream):
                now_s = streams.at(stream, log.marks[position].time_s, position)
                streams.order.record(event, stream)
                yield _Record(now_s, position, partial(recorder.event_recorded, event, stream))
            case operations.WaitEvent(event=event, stream=stream):
                streams.order.wait(event, stream)
                now_s = streams.reached_s(stream)
                yield _Record(now_s, position, partial(recorder.event_waited, event, stream, now_s))
            case operations.HostSynchronize(streams=waited):
                now_s = max(streams.reached_s(stream) for stream in waited)
                streams.order.synchronize(waited)
                yield _Record(now_s, position, partial(recorder.host_synchronized, waited, now_s))
            case operations.Alias():
                pass
            case operations.AllReduce() | operations.Communicate():  # pragma: no cover
                raise AssertionError(f"operation {position} concerns several GPUs, and was refused")


def _span(streams: _Streams, stream: Stream, log: IssueLog, position: int) -> tuple[float, float, float]:
    """Return when a kernel or copy was issued, began and ended.

    An idle stream may begin before the host reads its clock: then the operation was issued as it began.
    """
    interval = log.intervals[position]
    start_s = streams.at(stream, interval.start.time_s, position)
    end_s = streams.at(stream, interval.end.time_s, position)
    return min(log.issue_s[position], start_s), start_s, end_s
