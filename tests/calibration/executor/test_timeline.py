"""From marks to a trace, with clocks that do not quite agree."""

from dataclasses import dataclass, replace

import pytest

from calibration.devices.port import Interval
from calibration.timeline import CLOCK_NOISE_S, IssueLog, trace_of
from tests.toy import TOY_LIMITS, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.plan.operations import Allocate, Compute, Offload, Prefetch, RecordEvent, Release, Stream
from vdnnsim.plan.placement import Placement, place_plan
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.trace import IterationTrace

WORKLOAD = toy_workload(toy_chain(2))
COSTS = toy_costs(WORKLOAD, {})
PLAN = VdnnAll().plan(toy_setting(WORKLOAD, COSTS))
SIMULATED = replay(PLAN, COSTS)


@dataclass(frozen=True)
class At:
    """A mark that was reached at a known time."""

    time_s: float


def log_of(trace: IterationTrace) -> IssueLog:
    """Return what a host would have noted of a simulated iteration."""
    log = IssueLog()
    for span in trace.spans:
        log.intervals[span.operation] = Interval(At(span.start_s), At(span.end_s))
        log.issue_s[span.operation] = span.issue_s
    for change in trace.memory:
        log.marks[change.operation] = At(change.time_s)
    # Each event of this plan is recorded on the compute stream, before a kernel and after the one before it.
    done_s = 0.0
    for position, operation in enumerate(PLAN.operations):
        if isinstance(operation, Compute):
            done_s = next(span.end_s for span in trace.spans if span.operation == position)
        elif isinstance(operation, Allocate | Release):
            done_s = max(done_s, log.marks[position].time_s)
        elif isinstance(operation, RecordEvent):
            assert operation.stream is Stream.COMPUTE
            log.marks[position] = At(done_s)
    return log


def retold(log: IssueLog) -> IterationTrace:
    placement = place_plan(PLAN, TOY_LIMITS)
    assert isinstance(placement, Placement)
    return trace_of(PLAN, log, placement, SIMULATED.iteration_s)


def test_a_simulated_iteration_is_retold_as_it_was() -> None:
    """Spans, stalls with their causes, and memory: of the same marks comes the same trace."""
    assert SIMULATED.stalls
    assert any(isinstance(operation, Prefetch) for operation in PLAN.operations)

    assert retold(log_of(SIMULATED)) == SIMULATED


def test_an_effect_that_seems_to_come_before_its_cause_is_moved_behind_it() -> None:
    """The kernel behind the first synchronization starts 4 us before the offload that it waited for has ended."""
    log = log_of(SIMULATED)
    offload = next(i for i, each in enumerate(PLAN.operations) if isinstance(each, Offload))
    kernel = next(i for i, each in enumerate(PLAN.operations) if i > offload and isinstance(each, Compute))
    end_s = log.intervals[offload].end.time_s
    assert log.intervals[kernel].start.time_s == end_s
    log.intervals[kernel] = replace(log.intervals[kernel], start=At(end_s - 4e-6))

    assert retold(log) == SIMULATED


def test_an_effect_long_before_its_cause_is_no_noise() -> None:
    log = log_of(SIMULATED)
    kernel = [i for i, each in enumerate(PLAN.operations) if isinstance(each, Compute)][1]
    early_s = log.intervals[kernel].start.time_s - 2 * CLOCK_NOISE_S
    log.intervals[kernel] = replace(log.intervals[kernel], start=At(early_s))

    with pytest.raises(AssertionError, match=rf"operation {kernel} came .* before its cause"):
        retold(log)


def test_what_was_issued_after_it_began_was_issued_as_it_began() -> None:
    """The host looks at its clock after the launch, when an idle stream has already begun."""
    log = log_of(SIMULATED)
    kernel = next(i for i, each in enumerate(PLAN.operations) if isinstance(each, Compute))
    log.issue_s[kernel] = 0.5

    assert retold(log).spans[0].issue_s == 0


def test_no_span_ends_after_the_iteration() -> None:
    """The host's clock says that all was done a microsecond before the last kernel ended."""
    placement = place_plan(PLAN, TOY_LIMITS)
    assert isinstance(placement, Placement)

    trace = trace_of(PLAN, log_of(SIMULATED), placement, SIMULATED.iteration_s - 1e-6)

    assert trace.iteration_s == SIMULATED.iteration_s
