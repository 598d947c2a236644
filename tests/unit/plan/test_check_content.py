"""What is read was there before: given, written or fetched."""

from tests.unit.plan.hand_written import W, finished, read, refusal, take
from vdnnsim.plan.check import check_plan
from vdnnsim.plan.writer import PlanWriter


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


def test_an_offload_may_stay_on_the_host_if_nobody_reads_it_again(writer: PlanWriter) -> None:
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    writer.synchronize()
    writer.release(x)

    check_plan(finished(writer))
