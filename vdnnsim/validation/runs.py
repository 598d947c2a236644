"""The runs of one plan on a device: a warm-up, then as many as the method asks for, and which of them counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low

from vdnnsim.plan.placement import DoesNotFit, MemoryLimits
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.trace import IterationTrace
from vdnnsim.validation.method import Method
from vdnnsim.validation.order import order_fault
from vdnnsim.validation.port import Execution, Executor
from vdnnsim.validation.reading import Peaks, Reading


@dataclass(frozen=True, slots=True)
class Runs:
    """What came of the runs of one plan.

    Attributes:
        reading: of the run that counts, but with the largest peak of requested bytes of all.
        seconds: iteration time of each run.
        free_s: iteration time of the warm-up, whose durations were not given.
        order_fault: the first departure from the order of the replay in any run; None where there is none.
    """

    reading: Reading
    seconds: tuple[float, ...]
    free_s: float
    order_fault: str | None


def run_plan(
    executor: Executor,
    plan: TrainingPlan,
    limits: MemoryLimits,
    durations_s: Mapping[int, float] | None,
    expected: IterationTrace,
    method: Method,
) -> Runs | DoesNotFit:
    """Execute a plan several times.

    Args:
        executor: of the plan's workload.
        plan: one that has passed its check.
        limits: the memory that it may use.
        durations_s: what each operation is made to last; None for as long as it takes.
        expected: the replay of the plan, whose order the runs must keep.
        method: how often to run, and which run counts.

    Raises:
        ExecutionRefused: the executor cannot execute the plan.
        DeviceError: memory ran out in the middle.
    """
    warm_up = executor.execute(plan, limits)
    if isinstance(warm_up, DoesNotFit):
        return warm_up
    executions: list[Execution] = []
    tolerance = method.tolerance
    while len(executions) < method.runs:
        execution = executor.execute(plan, limits, durations_s)
        if isinstance(execution, DoesNotFit):  # something else has taken memory meanwhile
            return execution
        executions.append(execution)
        if durations_s and abs(expected.iteration_s / execution.trace.iteration_s - 1) <= tolerance.calibrated:
            break
    counts = _fastest(executions) if durations_s else _median(executions)
    faults = (order_fault(each.trace, expected, tolerance.clock_s) for each in executions)
    return Runs(
        reading=Reading.of(counts.trace, _largest_peaks(executions)),
        seconds=tuple(each.trace.iteration_s for each in executions),
        free_s=warm_up.trace.iteration_s,
        order_fault=next(filter(None, faults), None),
    )


def _fastest(executions: list[Execution]) -> Execution:
    return min(executions, key=lambda each: each.trace.iteration_s)


def _median(executions: list[Execution]) -> Execution:
    middle_s = median_low(each.trace.iteration_s for each in executions)
    return next(each for each in executions if each.trace.iteration_s == middle_s)


def _largest_peaks(executions: list[Execution]) -> Peaks:
    return Peaks.counted(max(executions, key=lambda each: each.peaks.requested_bytes).peaks)
