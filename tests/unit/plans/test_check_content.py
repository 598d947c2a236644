"""What is read was there before: given, written or fetched."""

from dataclasses import replace

import pytest

from tests.plan_writer import PlanWriter
from tests.unit.plans.hand_written import COMPUTE, MEMORY, W, finished, read, refusal, take, with_operations, write
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import HostSynchronize, Offload
from vdnnsim.plans.training_plan import TrainingPlan


def test_content_that_was_given_may_be_read_at_once_and_other_content_may_not(writer: PlanWriter) -> None:
    x, y = take(writer, "x", given=True), take(writer, "y")
    read(writer, x)
    read(writer, y)

    assert refusal(finished(writer)) == (
        "hand: operation 3 (backward weights of conv1 (only)): y is read before anything was written to it"
    )


def test_given_content_that_went_to_the_host_is_not_given_again(writer: PlanWriter) -> None:
    """The input batch was offloaded and released: a fresh allocation holds nothing until it was fetched."""
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    writer.synchronize()
    writer.release(x)
    writer.allocate(x, 0, W)
    read(writer, x)

    assert refusal(finished(writer)) == (
        "hand: operation 5 (backward weights of conv1 (only)): x is read before anything was written to it"
    )


def on_host(plan: TrainingPlan, buffer: int) -> TrainingPlan:
    """The plan with a buffer that is given on the host."""
    buffers = list(plan.buffers)
    buffers[buffer] = replace(buffers[buffer], given=True, given_on_host=True)
    return replace(plan, buffers=tuple(buffers))


def test_content_that_is_given_on_the_host_is_read_once_it_was_fetched(writer: PlanWriter) -> None:
    x = take(writer, "x")
    read(writer, x)

    assert refusal(on_host(finished(writer), x)) == (
        "hand: operation 1 (backward weights of conv1 (only)): x is read before anything was written to it"
    )


def test_content_that_is_given_on_the_host_is_there_at_the_end(writer: PlanWriter) -> None:
    """What nobody writes is there, for its copy was kept; what a kernel wrote has to leave again."""
    x, y = take(writer, "x"), take(writer, "y")
    writer.synchronize()
    for each in (x, y):
        writer.prefetch(each, 0, on_demand=True, keeps_copy=True)
    writer.synchronize()
    read(writer, x)
    write(writer, y)
    for each in (x, y):
        writer.release(each)
    plan = on_host(finished(writer), x)

    with pytest.raises(PlanError, match=r"release y\): y is not on the host at the end"):
        check_plan(on_host(plan, y))

    leaves = Offload(y, 0)
    order = [*plan.operations[:-2], HostSynchronize((COMPUTE,)), leaves, HostSynchronize((MEMORY,))]
    check_plan(on_host(with_operations(plan, [*order, *plan.operations[-2:]]), y))


def test_an_offload_may_stay_on_the_host_if_nobody_reads_it_again(writer: PlanWriter) -> None:
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    writer.synchronize()
    writer.release(x)

    check_plan(finished(writer))
