"""Runs of one plan on a device, and the one that counts.

At the device's own speed a warm-up is followed by several runs, more of short iterations, which a pause of the host
delays by more than they take, and the median counts. With given durations only other load on the machine delays a run,
so the closest run counts, the first within the tolerance is the last, and durations grow with `stretches`, as delays
weigh less in longer runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from statistics import median_low
from typing import Final

from vdnnsim.plans import operations
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.order import NOTHING, StreamOrder
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.trace import IterationTrace, MemoryCount
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.validation.executor import Execution, Executor
from vdnnsim.validation.method import Tolerance
from vdnnsim.validation.row import Side

_MOST_RUNS: Final = 15


@dataclass(frozen=True, slots=True)
class Given:
    """Durations by position of the operation, and the replay with them."""

    durations_s: Mapping[int, float]
    replay: IterationTrace


@dataclass(frozen=True, slots=True)
class PairedRun:
    """A run and its replay."""

    execution: Execution
    replay: IterationTrace

    @property
    def seconds(self) -> float:
        return self.execution.trace.iteration_s

    @property
    def error(self) -> float:
        """Absolute relative error of the replay."""
        return abs(self.replay.iteration_s / self.seconds - 1)


@dataclass(frozen=True, slots=True)
class Runs:
    """Result of the runs of one plan.

    Attributes:
        measured: the run that counts, with the largest peaks of all runs and the warm-up: PyTorch's allocator keeps
            what it has reserved.
        executions: number of executions in a row, from an empty cache on.
    """

    measured: Side
    executions: int
    replay: IterationTrace
    seconds: tuple[float, ...]
    order_fault: str | None

    @classmethod
    def of(
        cls, runs: Sequence[PairedRun], counts: PairedRun, tolerance: Tolerance, warm_up: Sequence[Execution] = ()
    ) -> "Runs":
        """Return the result of runs, of which one counts."""
        executions = [*warm_up, *(run.execution for run in runs)]
        faults = (order_fault(run.execution.trace, run.replay, tolerance.clock_s) for run in runs)
        return cls(
            measured=Side.of(counts.execution.trace, reduce(MemoryCount.largest, (each.peaks for each in executions))),
            executions=executions[-1].ordinal,
            replay=counts.replay,
            seconds=tuple(run.seconds for run in runs),
            order_fault=next(filter(None, faults), None),
        )


def run_free(
    executor: Executor,
    plan: TrainingPlan,
    limits: MemoryLimits,
    replay: IterationTrace,
    runs: int,
    least_s: float,
    tolerance: Tolerance,
) -> Runs | DoesNotFit:
    """Execute a plan at the device's own speed, at least so often and so long; raises as `Executor.execute`."""
    executions: list[Execution] = []
    while len(executions) < 1 + runs or (
        len(executions) <= _MOST_RUNS and sum(each.trace.iteration_s for each in executions[1:]) < least_s
    ):
        execution = executor.execute(plan, limits)
        if isinstance(execution, DoesNotFit):
            return execution
        executions.append(execution)
    warm_up, *counted = executions
    done = [PairedRun(each, replay) for each in counted]
    middle_s = median_low(run.seconds for run in done)
    return Runs.of(done, next(run for run in done if run.seconds == middle_s), tolerance, [warm_up])


def run_paced(
    executor: Executor,
    plan: TrainingPlan,
    limits: MemoryLimits,
    given: Callable[[float], Given],
    stretches: Sequence[float],
    tolerance: Tolerance,
) -> Runs | DoesNotFit:
    """Execute a plan with given durations, one run for each stretch, until one is within the tolerance."""
    done: list[PairedRun] = []
    for stretch in stretches:
        both = given(stretch)
        execution = executor.execute(plan, limits, both.durations_s)
        if isinstance(execution, DoesNotFit):
            return execution
        done.append(PairedRun(execution, both.replay))
        if done[-1].error <= tolerance.calibrated:
            break
    return Runs.of(done, min(done, key=lambda run: run.error), tolerance)


def order_fault(measured: IterationTrace, simulated: IterationTrace, resolution_s: float) -> str | None:
    """Return the first deviation of a measured trace from the order of a simulated one, or None."""
    plan = measured.plan
    for stream in Stream:
        ran, expected = ([span.operation for span in trace.spans_on(stream)] for trace in (measured, simulated))
        for place, (one, other) in enumerate(zip(ran, expected, strict=False)):
            if one != other:
                return f"{_name(plan, one)} ran as number {place + 1} of its stream, expected {_name(plan, other)}"
        if len(ran) != len(expected):
            return f"{len(ran)} spans on the {stream.value} stream, expected {len(expected)}"
    return _broken_wait(measured, resolution_s)


def _broken_wait(trace: IterationTrace, resolution_s: float) -> str | None:
    plan = trace.plan
    spans = {span.operation: span for span in trace.spans}
    order = StreamOrder()
    for position, operation in enumerate(plan.operations):
        match operation:
            case operations.Compute() | operations.Offload() | operations.Prefetch():
                stream = Stream.COMPUTE if isinstance(operation, operations.Compute) else Stream.MEMORY
                for before in order.reach(stream).values():
                    if before != NOTHING and spans[before].end_s > spans[position].start_s + resolution_s:
                        return f"{_name(plan, position)} started before {_name(plan, before)} had ended"
                order.run(stream, position)
            case operations.RecordEvent(event=event, stream=stream):
                order.record(event, stream)
            case operations.WaitEvent(event=event, stream=stream):
                order.wait(event, stream)
            case operations.HostSynchronize(streams=streams):
                order.synchronize(streams)
            case _:
                pass
    return None


def _name(plan: TrainingPlan, position: int) -> str:
    return describe(plan.operations[position], plan.buffer_names, plan.layers)
