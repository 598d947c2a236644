"""Traces of marks whose clocks do not quite agree."""

from dataclasses import dataclass, replace

import pytest

from calibration.devices.interface import Interval
from calibration.executor.measured_trace import IssueLog, clock_noise_s, trace_of
from tests.toy import TOY_LIMITS, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.errors import DeviceError
from vdnnsim.plans.operations import Allocate, Compute, Offload, Prefetch, RecordEvent, Release, Stream, WaitEvent
from vdnnsim.plans.placement import place_unlimited
from vdnnsim.plans.trace import IterationTrace, StallCause
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.vdnn import VdnnAll

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
    spans = {span.operation: span for span in trace.spans}
    changes_s = {change.operation: change.time_s for change in trace.memory}
    reached_s = dict.fromkeys(Stream, 0.0)
    recorded_s: dict[int, float] = {}
    for position, operation in enumerate(trace.plan.operations):
        match operation:
            case Compute() | Offload() | Prefetch():
                span = spans[position]
                log.intervals[position] = Interval(At(span.start_s), At(span.end_s))
                log.issue_s[position] = span.issue_s
                reached_s[span.stream] = span.end_s
            case Allocate() | Release() if position in changes_s:
                reached_s[Stream.COMPUTE] = changes_s[position]
                log.marks[position] = At(changes_s[position])
            case RecordEvent(event=event, stream=stream):
                recorded_s[event] = reached_s[stream]
                log.marks[position] = At(reached_s[stream])
            case WaitEvent(event=event, stream=stream):
                reached_s[stream] = max(reached_s[stream], recorded_s[event])
            case _:
                pass
    return log


def retraced(log: IssueLog, simulated: IterationTrace = SIMULATED, early_s: float = 0.0) -> IterationTrace:
    placement = place_unlimited(simulated.plan, TOY_LIMITS)
    return trace_of(simulated.plan, log, placement, simulated.iteration_s - early_s)


@pytest.mark.parametrize(
    ("policy", "device_bytes", "causes"),
    [
        (Base(), 1000, set()),
        (VdnnAll(), 1000, {StallCause.OFFLOAD, StallCause.PREFETCH}),
        (PageMigration(), 100, {StallCause.OFFLOAD, StallCause.ON_DEMAND}),
    ],
    ids=lambda each: each.label if isinstance(each, Policy) else None,
)
def test_trace_of_simulated_marks_is_the_simulated_trace(
    policy: Policy, device_bytes: int, causes: set[StallCause]
) -> None:
    limits = replace(TOY_LIMITS, device_bytes=device_bytes)
    simulated = replay(policy.plan(toy_setting(WORKLOAD, COSTS, limits)), COSTS, limits=limits)
    assert {stall.cause for stall in simulated.stalls} == causes
    assert retraced(log_of(simulated), simulated) == simulated


def test_effects_a_little_before_their_cause_are_noise_of_the_clock() -> None:
    """The kernel behind the first synchronization starts 4 us before the offload that it waited for has ended."""
    log = log_of(SIMULATED)
    offload = next(i for i, each in enumerate(PLAN.operations) if isinstance(each, Offload))
    kernel = next(i for i, each in enumerate(PLAN.operations) if i > offload and isinstance(each, Compute))
    end_s = log.intervals[offload].end.time_s
    assert log.intervals[kernel].start.time_s == end_s
    log.intervals[kernel] = replace(log.intervals[kernel], start=At(end_s - 4e-6))
    assert retraced(log) == SIMULATED
    # 20 us early are more than ten microseconds and the step of a float allow, 1.2 us at the 10 s of this cause.
    log = log_of(SIMULATED)
    kernel = [i for i, each in enumerate(PLAN.operations) if isinstance(each, Compute)][1]
    assert log.intervals[kernel].start.time_s == 10.0
    log.intervals[kernel] = replace(log.intervals[kernel], start=At(10.0 - 20e-6))
    with pytest.raises(DeviceError, match=r"clocks disagree.* operation 16 \(forward of conv2 .* 20\.0 us .* 11\.2 us"):
        retraced(log)
    # Ten microseconds and, of 100000 ms, between 2^16 and 2^17, at least a float's step of 2^(16 - 23) ms = 7.8 us.
    assert clock_noise_s(0.0) == 10e-6
    assert 22e-6 > clock_noise_s(100.0) >= 10e-6 + 2.0 ** (16 - 23) * 1e-3


def test_issue_time_is_at_most_the_start() -> None:
    """The host looks at its clock after the launch, when an idle stream has already begun."""
    log = log_of(SIMULATED)
    kernel = next(i for i, each in enumerate(PLAN.operations) if isinstance(each, Compute))
    log.issue_s[kernel] = 0.5
    assert retraced(log).spans[0].issue_s == 0
    # The host's clock says that all was done a microsecond before the last kernel ended.
    assert retraced(log_of(SIMULATED), early_s=1e-6).iteration_s == SIMULATED.iteration_s
