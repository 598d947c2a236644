"""Schedules that copy a map in two halves, by hand: maps of 10 B, 1 B/s, kernels of 6 s."""

import pytest

from tests.toy import replay, toy_chain, toy_costs, toy_workload
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import PlanError
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.operations import AllocateExtent, ReleaseExtent, Stream
from vdnnsim.plans.schedule import Offload, Prefetch, Schedule, ScheduleStep, Wait, backward, forward
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.algorithms import Algorithms, choose_kernels

WORKLOAD = toy_workload(toy_chain(2))
COSTS = toy_costs(WORKLOAD, {}, default_s=6.0)
LEFT, RIGHT = range(5), range(5, 10)
INPUT = (IterationBuffers(WORKLOAD).maps[0],)
CONV1, CONV2, FC, LOSS = WORKLOAD.graph.layers
FIRST, *REST = forward(WORKLOAD)
ORDER = backward(WORKLOAD)
AT_CONV1 = next(at for at, run in enumerate(ORDER) if run.layer is CONV1)
DATA, WEIGHTS = (at for at, run in enumerate(ORDER) if run.layer is CONV2)
"""Where backward of conv1 and the two gradients of conv2 stand in it."""


def played(schedule: Schedule) -> IterationTrace:
    costs = COSTS.table(WORKLOAD)
    kernels = choose_kernels(WORKLOAD, costs, Algorithms.PERFORMANCE_OPTIMAL)
    return replay(lower(schedule, WORKLOAD, kernels, label="halves", algorithms="p"), COSTS)


def copies(trace: IterationTrace) -> list[str]:
    plan = trace.plan
    copied = [
        (span, describe(plan.operations[span.operation], plan.buffer_names, plan.layers))
        for span in trace.spans_on(Stream.MEMORY)
    ]
    return [f"{what.partition(' during')[0]}: {span.start_s:g} to {span.end_s:g}" for span, what in copied]


def test_halves_are_copied_beside_different_kernels() -> None:
    """Forward of conv1 ends at 6, of conv2 at 12; after each half of the input is offloaded in 5 s.

    Backward begins at 24: the loss has one kernel, fc and conv2 have two each, conv1 one. So the input is
    prefetched in halves beside those of conv2, from 42 and 48, before that of conv1 begins at 54: nothing stalls.
    """
    schedule: list[ScheduleStep] = [
        FIRST,
        Offload(INPUT, CONV1, extent=LEFT),
        *REST[:1],
        Offload(INPUT, CONV2, extent=RIGHT),
        *REST[1:],
        Wait(INPUT),
        *ORDER[:DATA],
        Prefetch(INPUT, CONV2, Phase.BACKWARD_DATA, on_demand=False, extent=LEFT),
        *ORDER[DATA:WEIGHTS],
        Prefetch(INPUT, CONV2, Phase.BACKWARD_DATA, on_demand=False, extent=RIGHT),
        *ORDER[WEIGHTS:],
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
    """Both halves are prefetched right before backward of conv1: it waits for 10 s."""
    schedule: list[ScheduleStep] = [
        FIRST,
        Offload(INPUT, CONV1),
        *REST,
        Wait(INPUT),
        *ORDER[:AT_CONV1],
        Prefetch(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, on_demand=True, extent=RIGHT),
        Prefetch(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, on_demand=True, extent=LEFT),
        *ORDER[AT_CONV1:],
    ]

    (stall,) = played(schedule).stalls

    assert stall.end_s - stall.start_s == 10


def test_a_wait_for_a_half_frees_its_memory_and_keeps_the_buffer() -> None:
    """The left half is offloaded until 11 s, so that conv2 waits from 6 to 11; its 5 B are free until the prefetch.

    At 17 s conv2 ends, and forward at 29. The half is prefetched beside dW of conv2, from 53 to 58, before conv1
    begins.
    """
    schedule: list[ScheduleStep] = [
        FIRST,
        Offload(INPUT, CONV1, extent=LEFT),
        Wait(INPUT, LEFT),
        *REST,
        *ORDER[:WEIGHTS],
        Prefetch(INPUT, CONV2, Phase.BACKWARD_WEIGHTS, on_demand=False, extent=LEFT),
        *ORDER[WEIGHTS:],
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


def test_a_wait_for_the_last_half_covers_both() -> None:
    """The memory stream runs in order: both halves are copied at 16 s, and the second wait takes no time."""
    schedule: list[ScheduleStep] = [
        FIRST,
        Offload(INPUT, CONV1, extent=LEFT),
        Offload(INPUT, CONV1, extent=RIGHT),
        Wait(INPUT, RIGHT),
        Wait(INPUT, LEFT),
        *REST,
        *ORDER[:AT_CONV1],
        Prefetch(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, on_demand=True, extent=LEFT),
        Prefetch(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, on_demand=True, extent=RIGHT),
        *ORDER[AT_CONV1:],
    ]

    assert [each.end_s - each.start_s for each in played(schedule).stalls] == [10, 10]


def test_a_wait_for_bytes_that_no_copy_moves_is_refused() -> None:
    schedule: list[ScheduleStep] = [FIRST, Offload(INPUT, CONV1, extent=LEFT), Wait(INPUT, RIGHT), *REST]

    with pytest.raises(PlanError, match=r"^halves: waits for map input, which no copy moves"):
        played(schedule)
