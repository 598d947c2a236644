"""The events between the streams of a plan with collectives, and what the check of plans refuses without them."""

from dataclasses import replace

import pytest

from tests.captured_ranks import sharded
from tests.unit.plans.hand_written import COMPUTE, F, refusal, script, with_operations
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.communication import with_communication
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Communicate, Stream, WaitEvent
from vdnnsim.plans.training_plan import TrainingPlan

COMMUNICATION = Stream.COMMUNICATION


def waits(plan: TrainingPlan) -> list[tuple[str, Stream]]:
    """What follows each wait, and the stream that waits."""
    return [
        (describe(plan.operations[position + 1], plan.buffer_names, plan.layers), each.stream)
        for position, each in enumerate(plan.operations)
        if isinstance(each, WaitEvent)
    ]


def test_a_plan_without_collectives_stays_as_it_is() -> None:
    plan = script("take x; write x; free x")
    assert with_communication(plan) is plan


def test_streams_wait_for_each_other_by_data_alone() -> None:
    """The gather waits for the kernel that wrote x, not for the one on y; the last kernel for the gather.

    z is of the communication stream, which waits for its last reader before it is released.
    """
    bare = script(
        "take x; take y; take z; write x; write y; gather x z; read y; read z z; read z; free x; free y; free z"
    )
    assert "x is exchanged before the stream waited for its kernel" in refusal(bare)
    plan = with_communication(bare)
    check_plan(plan)
    assert [stream for _, stream in waits(plan)] == [COMMUNICATION, COMPUTE, COMMUNICATION]
    assert [what for what, _ in waits(plan)][:2] == [
        "all_gather of 2 ranks in forward of conv1",
        "backward weights of conv1 (only)",
    ]
    assert [each.stream for each in plan.operations[-3:] if hasattr(each, "stream")] == [
        *(COMPUTE, COMPUTE, COMMUNICATION)
    ]
    kernels = [position for position, each in enumerate(plan.operations) if isinstance(each, Communicate)]
    assert isinstance(plan.operations[kernels[0] - 1], WaitEvent)
    # Its event stands right after the first kernel, before the second.
    event = next(each.event for each in plan.operations if isinstance(each, WaitEvent))
    recorded = [getattr(each, "event", None) for each in plan.operations].index(event)
    assert recorded == 4


def test_a_collective_on_the_compute_stream_needs_no_event() -> None:
    plan = script("take x; write x; gather x x; read x; free x")
    here = [replace(each, stream=COMPUTE) if isinstance(each, Communicate) else each for each in plan.operations]
    plan = with_operations(plan, here)
    check_plan(with_communication(plan))
    assert with_communication(plan) == plan


def test_copies_and_synchronizations_of_a_plan_count() -> None:
    """X goes to the host and back by the plan's own events; what is gathered after waits for the copy back.

    After the host waited for both streams, no collective waits for the kernel before.
    """
    copied = "compute>memory; offload x; prefetch x; gather x; memory>compute"
    plan = with_communication(script(f"take x; take y; write x; {copied}; write y; sync; gather y; free x; free y"))
    check_plan(plan)
    own = {0, 1}
    added = [each for each in plan.operations if isinstance(each, WaitEvent) and each.event not in own]
    # The last two let the compute stream release x and y.
    assert [each.stream for each in added] == [COMMUNICATION, COMPUTE, COMPUTE]


def test_what_lies_in_another_buffer_waits_for_its_collective() -> None:
    plan = script("take below; write below; gather below; lay above below; write above; free above; free below")
    full = with_communication(plan)
    check_plan(full)
    *_, last = (position for position, each in enumerate(full.operations) if isinstance(each, WaitEvent))
    assert "covered before the compute stream waited" in refusal(without(full, last))


def test_an_extent_that_is_released_waits_for_the_collective_on_its_buffer() -> None:
    plan = with_communication(script("take x; write x; gather x; free x[0:5]; free x"))
    check_plan(plan)
    assert waits(plan)[1] == ("release bytes 0 to 4 of x", COMPUTE)


def without(plan: TrainingPlan, left_out: int) -> TrainingPlan:
    return with_operations(plan, [each for at, each in enumerate(plan.operations) if at != left_out])


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (0, "is exchanged before the stream waited for its kernel"),
        (1, "is read before the compute stream waited for its exchange"),
        (2, "is released before the communication stream waited for its kernel"),
    ],
)
def test_each_event_is_needed(left_out: int, message: str) -> None:
    """The gather of x, the kernel that reads z, and the release of z wait for one each."""
    plan = with_communication(script("take x; take z; write x; gather x z; read z; free x; free z"))
    found = [position for position, each in enumerate(plan.operations) if isinstance(each, WaitEvent)]
    assert message in refusal(without(plan, found[left_out]))


def test_a_collective_reads_what_was_written() -> None:
    plan = with_communication(script("take x; gather x"))
    assert "x is exchanged before anything was written to it" in refusal(plan)


def test_layers_of_a_rank_have_its_collectives() -> None:
    """Copy, gather and copy-out belong to the layer whose weight they gather."""
    step = CapturedWorkload.of(sharded()).step

    assert [each.collective is not None for each in step.operations_of(0, F)] == [False, True, False, False]
