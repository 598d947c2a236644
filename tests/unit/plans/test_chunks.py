"""Which copies are cut into chunks, and when their memory is given back; x has 10 B, a chunk 4."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.plan_writer import PlanWriter
from tests.unit.plans.hand_written import COMPUTE, MEMORY, W, finished, name, order, read, take, with_operations, write
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.chunks import in_chunks
from vdnnsim.plans.operations import (
    Aggregation,
    AllReduce,
    HostSynchronize,
    Offload,
    Operation,
    Paged,
    Prefetch,
    RecordEvent,
    ReleaseExtent,
    WaitEvent,
)

CHUNKS = [range(4), range(4, 8), range(8, 10)]
Between = Callable[[PlanWriter, int], None]


def nothing(_writer: PlanWriter, _x: int) -> None:
    """Do nothing."""


def reads(writer: PlanWriter, x: int) -> None:
    """Let a kernel read x once it has left."""
    read(writer, x)


def covers(writer: PlanWriter, x: int) -> None:
    """Lay a buffer into x once it has left."""
    y = name(writer, "y")
    writer.alias(y, x)
    writer.release(y)


def chunked_with(writer: PlanWriter, x: int, between: Between) -> list[Operation]:
    """Write x, copy it to the host, wait, and release it; return the plan in chunks."""
    write(writer, x)
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0)
    order(writer, MEMORY, COMPUTE)
    between(writer, x)
    writer.release(x)
    return list(in_chunks(finished(writer), 4).operations)


def given_back(operations: list[Operation]) -> list[range]:
    return [each.extent for each in operations if isinstance(each, ReleaseExtent)]


def test_each_chunk_is_given_back_when_it_has_left(writer: PlanWriter) -> None:
    """The wait for the whole copy (event 1) stands behind those for the first two chunks; the last goes with x."""
    operations = chunked_with(writer, x := take(writer, "x"), nothing)

    assert operations[4:-1] == [
        Offload(x, 0, extent=CHUNKS[0]),
        RecordEvent(2, MEMORY),
        Offload(x, 0, extent=CHUNKS[1]),
        RecordEvent(3, MEMORY),
        Offload(x, 0, extent=CHUNKS[2]),
        RecordEvent(1, MEMORY),
        WaitEvent(2, COMPUTE),
        ReleaseExtent(x, CHUNKS[0]),
        WaitEvent(3, COMPUTE),
        ReleaseExtent(x, CHUNKS[1]),
        WaitEvent(1, COMPUTE),
    ]


def test_a_synchronization_of_the_host_is_a_wait(writer: PlanWriter) -> None:
    x = take(writer, "x")
    write(writer, x)
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0)
    writer.synchronize()
    writer.release(x)
    plan = in_chunks(finished(writer), 4)

    check_plan(plan)
    assert given_back(list(plan.operations)) == CHUNKS[:2]
    assert isinstance(plan.operations[-2], HostSynchronize)


@pytest.mark.parametrize("between", [reads, covers])
def test_what_is_used_before_its_release_stays_as_a_whole(writer: PlanWriter, between: Between) -> None:
    operations = chunked_with(writer, take(writer, "x"), between)

    assert [each.extent for each in operations if isinstance(each, Offload)] == CHUNKS
    assert not given_back(operations)


def test_what_is_exchanged_before_its_release_stays_as_a_whole(writer: PlanWriter) -> None:
    x = take(writer, "x")
    assert given_back(chunked_with(writer, x, nothing)) == CHUNKS[:2]
    plan = finished(writer)
    exchanged = [*plan.operations[:-1], AllReduce(0, (x,), 0, Aggregation.RING), plan.operations[-1]]

    assert not given_back(list(in_chunks(with_operations(plan, exchanged), 4).operations))


def test_what_lies_in_another_buffer_has_nothing_to_give_back(writer: PlanWriter) -> None:
    below, x = take(writer, "below"), name(writer, "x")
    writer.alias(x, below)
    operations = chunked_with(writer, x, nothing)

    assert [each.extent for each in operations if isinstance(each, Offload)] == CHUNKS
    assert not given_back(operations)


@pytest.mark.parametrize("chunk_bytes", [10, 11])
def test_what_one_chunk_holds_is_copied_and_released_as_a_whole(writer: PlanWriter, chunk_bytes: int) -> None:
    write(writer, x := take(writer, "x"))
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0)
    order(writer, MEMORY, COMPUTE)
    writer.release(x)
    plan = finished(writer)

    assert in_chunks(plan, chunk_bytes) == plan


def test_pages_and_parts_are_copied_as_they_are(writer: PlanWriter) -> None:
    """Pages are small already; parts were chosen by a policy."""
    x, y = take(writer, "x"), take(writer, "y")
    write(writer, x, y)
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0, mechanism=Paged(page_bytes=4, page_latency_s=1.0))
    writer.offload(y, 0, extent=range(1, 8))
    writer.synchronize()
    writer.release(x)
    writer.release(y)
    plan = finished(writer)

    assert in_chunks(plan, 4) == plan


def test_what_comes_back_comes_in_chunks(writer: PlanWriter) -> None:
    x = take(writer, "x")
    write(writer, x)
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0, copy=3)
    order(writer, MEMORY, COMPUTE)
    writer.release(x)
    writer.allocate(x, 0, W)
    order(writer, COMPUTE, MEMORY)
    writer.prefetch(x, 1, on_demand=True, keeps_copy=True, copy=3)
    order(writer, MEMORY, COMPUTE)
    read(writer, x)
    writer.release(x)
    plan = in_chunks(finished(writer), 4)

    check_plan(plan)
    whole = Prefetch(x, 1, on_demand=True, keeps_copy=True, copy=3)
    assert [each for each in plan.operations if isinstance(each, Prefetch)] == [
        replace(whole, extent=extent) for extent in CHUNKS
    ]
