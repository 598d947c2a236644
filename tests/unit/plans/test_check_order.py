"""Whatever touches the same bytes from two streams is ordered, by events or by synchronizations."""

import pytest

from tests.plan_writer import PlanWriter
from tests.toy import touching
from tests.unit.plans.hand_written import (
    COMPUTE,
    MEMORY,
    F,
    W,
    finished,
    order,
    read,
    refusal,
    round_trip,
    take,
    with_operations,
    write,
)
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Compute, HostSynchronize, Stream


def test_a_kernel_must_not_write_what_is_being_copied(writer: PlanWriter) -> None:
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    write(writer, x)

    assert refusal(finished(writer)) == (
        "hand: operation 2 (forward of conv1 (only)): x is written before the compute stream waited for its copy"
    )


def test_a_kernel_may_read_what_is_being_offloaded(writer: PlanWriter) -> None:
    """Both only read the bytes; that is how vDNN hides an offload behind the last consumer."""
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    read(writer, x)
    writer.synchronize()
    writer.release(x)

    check_plan(finished(writer))


def test_a_kernel_that_reads_holds_a_prefetch_back_as_well(writer: PlanWriter) -> None:
    """The bytes would change under the kernel: x is on the host and still here when a kernel reads it."""
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    order(writer, COMPUTE, MEMORY)
    read(writer, x)
    writer.prefetch(x, 0, on_demand=False)

    assert refusal(finished(writer)) == (
        "hand: operation 5 (prefetch of x during backward of conv1): "
        "x is prefetched before the memory stream waited for its allocation"
    )


def test_a_kernel_must_not_write_into_a_prefetch() -> None:
    """In the round trip the prefetch is operation 11, and the compute stream waits for it from 13 on."""
    plan = round_trip()
    operations = [*plan.operations[:12], Compute(0, F, "only", touching(writes=[0])), *plan.operations[12:]]

    assert refusal(with_operations(plan, operations)) == (
        "hand: operation 12 (forward of conv1 (only)): x is written before the compute stream waited for its copy"
    )


def test_an_event_marks_what_was_issued_before_it_and_nothing_later(writer: PlanWriter) -> None:
    """The event is recorded on the memory stream before the copy, so waiting for it says nothing about the copy."""
    x = take(writer, "x", given=True)
    early = writer.record(MEMORY)
    writer.offload(x, 0)
    writer.wait(early, COMPUTE)
    writer.release(x)

    assert refusal(finished(writer)) == (
        "hand: operation 4 (release x): x is released before the compute stream waited for its copy"
    )


def test_one_event_serves_all_that_its_stream_does_after_the_wait(writer: PlanWriter) -> None:
    """A kernel writes x and y. Both copies stand behind one wait for it, both releases behind one wait for them."""
    x, y = take(writer, "x"), take(writer, "y")
    write(writer, x, y)
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0)
    writer.offload(y, 0)
    order(writer, MEMORY, COMPUTE)
    writer.release(x)
    writer.release(y)

    check_plan(finished(writer))


@pytest.mark.parametrize(
    ("streams", "fits"),
    [((COMPUTE, MEMORY), True), ((MEMORY,), True), ((COMPUTE,), False), ((), False)],
)
def test_a_synchronization_orders_what_the_host_issues_later(
    writer: PlanWriter, streams: tuple[Stream, ...], *, fits: bool
) -> None:
    """The host waits for the copy on the memory stream, so the Release, issued later, comes after it.

    A synchronization with the compute stream alone, or with none, says nothing about the copy.
    """
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    writer.synchronize()
    writer.release(x)
    plan = finished(writer)
    operations = [HostSynchronize(streams) if isinstance(op, HostSynchronize) else op for op in plan.operations]

    if fits:
        check_plan(with_operations(plan, operations))
    else:
        assert refusal(with_operations(plan, operations)) == (
            "hand: operation 3 (release x): x is released before the compute stream waited for its copy"
        )


def test_a_synchronization_orders_a_prefetch_after_its_allocation(writer: PlanWriter) -> None:
    """The host has waited for the compute stream, which reached the Allocate; no event is needed."""
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    writer.synchronize()
    writer.release(x)
    writer.allocate(x, 0, W)
    writer.synchronize()
    writer.prefetch(x, 0, on_demand=True)
    writer.synchronize()
    read(writer, x)
    writer.release(x)

    check_plan(finished(writer))


def test_a_synchronization_says_nothing_about_what_is_issued_after_it(writer: PlanWriter) -> None:
    x = take(writer, "x", given=True)
    writer.synchronize()
    writer.offload(x, 0)
    writer.release(x)

    assert refusal(finished(writer)) == (
        "hand: operation 3 (release x): x is released before the compute stream waited for its copy"
    )


def test_what_the_host_knows_of_a_stream_includes_what_that_stream_waited_for(writer: PlanWriter) -> None:
    """The compute stream waits for the copy, the host for the compute stream: so the copy is done."""
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    order(writer, MEMORY, COMPUTE)
    writer.synchronize()
    writer.release(x)
    plan = finished(writer)
    operations = [HostSynchronize((COMPUTE,)) if isinstance(op, HostSynchronize) else op for op in plan.operations]

    check_plan(with_operations(plan, operations))
