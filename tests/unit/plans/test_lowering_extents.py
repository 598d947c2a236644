"""Schedules that copy a map in two halves, by hand: maps of 10 B, 1 B/s, kernels of 6 s."""

import pytest

from tests.toy import replay, toy_chain, toy_costs, toy_workload
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import PlanError
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.operations import AllocateExtent, ReleaseExtent, Stream, describe
from vdnnsim.plans.schedule import Offload, Prefetch, Schedule, ScheduleStep, Wait, backward, forward
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.algorithms import Algorithms, choose_kernels

WORKLOAD = toy_workload(toy_chain(2))
COSTS = toy_costs(WORKLOAD, {}, default_s=6.0)
LEFT, RIGHT = range(5), range(5, 10)
INPUT = (IterationBuffers(WORKLOAD).maps[0],)
CONV1, CONV2, FC, LOSS = WORKLOAD.graph.layers


def played(schedule: Schedule) -> IterationTrace:
    """Lower, check and replay."""
    costs = COSTS.table(WORKLOAD)
    kernels = choose_kernels(WORKLOAD, costs, Algorithms.PERFORMANCE_OPTIMAL)
    return replay(lower(schedule, WORKLOAD, kernels, label="halves", algorithms="p"), COSTS)


def copies(trace: IterationTrace) -> list[str]:
    """Tell what was copied when, and which kernel waited."""
    plan = trace.plan
    told = []
    for span in trace.spans_on(Stream.MEMORY):
        what = describe(plan.operations[span.operation], plan.buffer_names, plan.layers).partition(" during")[0]
        told.append(f"{what}: {span.start_s:g} to {span.end_s:g}")
    return told


def test_halves_leave_and_come_back_beside_kernels_of_their_own() -> None:
    """Forward of conv1 ends at 6, of conv2 at 12; the input leaves in halves of 5 s behind each.

    Backward begins at 24: the loss has one kernel, fc and conv2 have two each, conv1 one. So the input comes back in
    halves beside those of conv2, from 42 and 48, and is there when that of conv1 begins at 54: nobody waits.
    """
    after_conv1, *rest = forward(WORKLOAD)
    order = backward(WORKLOAD)
    conv2 = [position for position, run in enumerate(order) if run.layer is CONV2]
    schedule: list[ScheduleStep] = [
        after_conv1,
        Offload(INPUT, CONV1, extent=LEFT),
        *rest[:1],
        Offload(INPUT, CONV2, extent=RIGHT),
        *rest[1:],
        Wait(INPUT),
        *order[: conv2[0]],
        Prefetch(INPUT, CONV2, Phase.BACKWARD_DATA, on_demand=False, extent=LEFT),
        *order[conv2[0] : conv2[1]],
        Prefetch(INPUT, CONV2, Phase.BACKWARD_DATA, on_demand=False, extent=RIGHT),
        *order[conv2[1] :],
    ]

    trace = played(schedule)

    assert copies(trace) == [
        "offload of bytes 0 to 4 of map input: 6 to 11",
        "offload of bytes 5 to 9 of map input: 12 to 17",
        "prefetch of bytes 0 to 4 of map input: 42 to 47",
        "prefetch of bytes 5 to 9 of map input: 48 to 53",
    ]
    assert trace.iteration_s == 60
    assert not trace.stalls


def test_a_kernel_waits_for_the_last_half() -> None:
    """Both halves come back ahead of backward of conv1 alone: it waits for 10 s."""
    runs = forward(WORKLOAD)
    order = backward(WORKLOAD)
    first = next(position for position, run in enumerate(order) if run.layer is CONV1)
    schedule: list[ScheduleStep] = [
        runs[0],
        Offload(INPUT, CONV1),
        *runs[1:],
        Wait(INPUT),
        *order[:first],
        Prefetch(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, on_demand=True, extent=RIGHT),
        Prefetch(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, on_demand=True, extent=LEFT),
        *order[first:],
    ]

    (stall,) = played(schedule).stalls

    assert stall.end_s - stall.start_s == 10


def test_a_wait_for_a_half_gives_its_memory_back_and_the_buffer_stays() -> None:
    """The left half has left until 11 s, so that conv2 waits from 6 to 11; its 5 B are free until it comes back.

    At 17 s conv2 ends, and forward at 29. The half comes back beside dW of conv2, from 53 to 58, before conv1 begins.
    """
    after_conv1, *rest = forward(WORKLOAD)
    order = backward(WORKLOAD)
    conv2 = [position for position, run in enumerate(order) if run.layer is CONV2]
    schedule: list[ScheduleStep] = [
        after_conv1,
        Offload(INPUT, CONV1, extent=LEFT),
        Wait(INPUT, LEFT),
        *rest,
        *order[: conv2[1]],
        Prefetch(INPUT, CONV2, Phase.BACKWARD_WEIGHTS, on_demand=False, extent=LEFT),
        *order[conv2[1] :],
    ]

    trace = played(schedule)

    freed = [each for each in trace.plan.operations if isinstance(each, AllocateExtent | ReleaseExtent)]
    assert [(type(each), each.buffer, each.extent) for each in freed] == [
        (ReleaseExtent, INPUT[0], LEFT),
        (AllocateExtent, INPUT[0], LEFT),
    ]
    assert copies(trace) == [
        "offload of bytes 0 to 4 of map input: 6 to 11",
        "prefetch of bytes 0 to 4 of map input: 53 to 58",
    ]
    assert [each.end_s - each.start_s for each in trace.stalls] == [5]
    assert trace.iteration_s == 65


def test_who_waits_for_the_last_half_has_waited_for_both() -> None:
    """The memory stream runs in order: both halves have left at 16 s, and the second wait takes no time."""
    after_conv1, *rest = forward(WORKLOAD)
    order = backward(WORKLOAD)
    first = next(position for position, run in enumerate(order) if run.layer is CONV1)
    schedule: list[ScheduleStep] = [
        after_conv1,
        Offload(INPUT, CONV1, extent=LEFT),
        Offload(INPUT, CONV1, extent=RIGHT),
        Wait(INPUT, RIGHT),
        Wait(INPUT, LEFT),
        *rest,
        *order[:first],
        Prefetch(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, on_demand=True, extent=LEFT),
        Prefetch(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, on_demand=True, extent=RIGHT),
        *order[first:],
    ]

    assert [each.end_s - each.start_s for each in played(schedule).stalls] == [10, 10]


def test_a_wait_for_bytes_that_no_copy_moves_is_refused() -> None:
    after_conv1, *rest = forward(WORKLOAD)
    schedule: list[ScheduleStep] = [after_conv1, Offload(INPUT, CONV1, extent=LEFT), Wait(INPUT, RIGHT), *rest]

    with pytest.raises(PlanError, match=r"^halves: waits for map input, which no copy moves"):
        played(schedule)
