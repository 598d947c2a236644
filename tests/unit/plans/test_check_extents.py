"""Parts of a buffer leave, are given back and come back: what each of these operations may not do without.

The buffer x has 10 B; `LEFT` are its first 4, `RIGHT` the other 6.
"""

from collections.abc import Callable

import pytest

from tests.plan_writer import PlanWriter
from tests.unit.plans.hand_written import COMPUTE, MEMORY, F, W, finished, name, order, read, refusal, take, write
from vdnnsim.plans.check import check_plan

LEFT, RIGHT = range(4), range(4, 10)
Step = Callable[[PlanWriter, int], None]


def both_leave(writer: PlanWriter, x: int) -> None:
    """Copy both parts to the host."""
    write(writer, x)
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0, extent=LEFT)
    writer.offload(x, 0, extent=RIGHT)


def both_are_given_back(writer: PlanWriter, x: int) -> None:
    """Wait for both copies."""
    both_leave(writer, x)
    order(writer, MEMORY, COMPUTE)
    writer.release_extent(x, LEFT)
    writer.release_extent(x, RIGHT)


def comes_back(writer: PlanWriter, x: int, extent: range) -> None:
    """Take memory for a part and copy it back."""
    writer.allocate_extent(x, extent, 0, W)
    order(writer, COMPUTE, MEMORY)
    writer.prefetch(x, 0, on_demand=False, extent=extent)


def plan_of(writer: PlanWriter, *steps: Step) -> str:
    """Return what the check says of a plan that takes steps with x."""
    x = take(writer, "x")
    for step in steps:
        step(writer, x)
    writer.release(x)
    return refusal(finished(writer))


def test_parts_that_leave_and_come_back_are_the_whole_again(writer: PlanWriter) -> None:
    """One may be on its way to the host while the other is given back, and on its way back while the other comes."""
    x = take(writer, "x")
    write(writer, x)
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0, extent=LEFT)
    left = writer.record(MEMORY)
    writer.offload(x, 0, extent=RIGHT)
    right = writer.record(MEMORY)
    writer.wait(left, COMPUTE)
    writer.release_extent(x, LEFT)
    writer.wait(right, COMPUTE)
    writer.release_extent(x, RIGHT)
    comes_back(writer, x, RIGHT)
    comes_back(writer, x, LEFT)
    order(writer, MEMORY, COMPUTE)
    read(writer, x)
    writer.release(x)
    check_plan(finished(writer))


def test_parts_may_come_back_by_other_ranges_than_they_left(writer: PlanWriter) -> None:
    x = take(writer, "x")
    both_are_given_back(writer, x)
    comes_back(writer, x, range(2))
    comes_back(writer, x, range(2, 10))
    order(writer, MEMORY, COMPUTE)
    read(writer, x)
    writer.release(x)
    check_plan(finished(writer))


def test_a_buffer_may_be_released_with_parts_away_and_come_back_as_a_whole(writer: PlanWriter) -> None:
    x = take(writer, "x")
    both_leave(writer, x)
    order(writer, MEMORY, COMPUTE)
    writer.release_extent(x, LEFT)
    writer.release(x)
    writer.allocate(x, 0, W)
    order(writer, COMPUTE, MEMORY)
    writer.prefetch(x, 0, on_demand=False)
    order(writer, MEMORY, COMPUTE)
    read(writer, x)
    writer.release(x)
    check_plan(finished(writer))


def test_a_kernel_needs_all_parts(writer: PlanWriter) -> None:
    def one_is_back(writer: PlanWriter, x: int) -> None:
        comes_back(writer, x, LEFT)
        order(writer, MEMORY, COMPUTE)

    assert plan_of(writer, both_are_given_back, one_is_back, read) == (
        "hand: operation 16 (backward weights of conv1 (only)): bytes 4 to 9 of x is used while its memory is given "
        "back"
    )


def test_a_part_is_read_once_its_copy_was_waited_for(writer: PlanWriter) -> None:
    """The wait stands behind the prefetch of the first part, not of the second."""

    def one_waited_for(writer: PlanWriter, x: int) -> None:
        comes_back(writer, x, LEFT)
        order(writer, MEMORY, COMPUTE)
        comes_back(writer, x, RIGHT)

    assert plan_of(writer, both_are_given_back, one_waited_for, read).endswith(
        "bytes 4 to 9 of x is read before the compute stream waited for its prefetch"
    )


def test_what_is_taken_again_is_empty(writer: PlanWriter) -> None:
    def taken(writer: PlanWriter, x: int) -> None:
        writer.allocate_extent(x, LEFT, 0, W)
        writer.allocate_extent(x, RIGHT, 0, W)

    assert plan_of(writer, both_are_given_back, taken, read).endswith(
        "bytes 0 to 3 of x is read before anything was written to it"
    )


def test_a_part_is_given_back_once_its_offload_was_waited_for(writer: PlanWriter) -> None:
    def one_waited_for(writer: PlanWriter, x: int) -> None:
        write(writer, x)
        order(writer, COMPUTE, MEMORY)
        writer.offload(x, 0, extent=LEFT)
        order(writer, MEMORY, COMPUTE)
        writer.offload(x, 0, extent=RIGHT)
        writer.release_extent(x, LEFT)
        writer.release_extent(x, RIGHT)

    assert plan_of(writer, one_waited_for) == (
        "hand: operation 9 (release bytes 4 to 9 of x): bytes 4 to 9 of x is released before the compute stream waited "
        "for its copy"
    )


def test_a_part_is_fetched_once_its_memory_is_there(writer: PlanWriter) -> None:
    def too_early(writer: PlanWriter, x: int) -> None:
        writer.allocate_extent(x, LEFT, 0, W)
        order(writer, COMPUTE, MEMORY)
        writer.allocate_extent(x, RIGHT, 0, W)
        writer.prefetch(x, 0, on_demand=False, extent=RIGHT)

    assert plan_of(writer, both_are_given_back, too_early).endswith(
        "bytes 4 to 9 of x is prefetched before the memory stream waited for its allocation"
    )


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda w, x: w.release_extent(x, LEFT), "bytes 0 to 3 of x is used while its memory is given back"),
        (lambda w, x: w.offload(x, 0, extent=LEFT), "bytes 0 to 3 of x is used while its memory is given back"),
        (lambda w, x: w.prefetch(x, 0, on_demand=True), "bytes 0 to 3 of x is used while its memory is given back"),
        (write, "bytes 0 to 3 of x is used while its memory is given back"),
        (lambda w, x: w.alias(name(w, "y"), x), "bytes 0 to 3 of x is used while its memory is given back"),
        (lambda w, x: w.allocate(x, 0, F), "x is allocated twice"),
    ],
)
def test_what_is_given_back_cannot_be_used(writer: PlanWriter, step: Step, message: str) -> None:
    assert plan_of(writer, both_are_given_back, step).endswith(f": {message}")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda w, x: w.allocate_extent(x, LEFT, 0, F), "bytes 0 to 3 of x is allocated twice"),
        (lambda w, x: w.offload(x, 0, extent=LEFT), "bytes 0 to 3 of x is offloaded twice"),
        (lambda w, x: w.release_extent(x, range(4, 11)), "x has 10 B, found 7 B from byte 4 on"),
        (
            lambda w, x: w.release_extent(x, range(-1, 1)),
            "x has 10 B, found 2 B from byte -1 on",
        ),
        (
            lambda w, x: w.offload(x, 0, extent=range(3, 3)),
            "x has 10 B, found 0 B from byte 3 on",
        ),
    ],
)
def test_what_is_there_is_not_taken_or_copied_again(writer: PlanWriter, step: Step, message: str) -> None:
    assert plan_of(writer, both_leave, step).endswith(f": {message}")


def test_a_part_that_never_left_cannot_come_back(writer: PlanWriter) -> None:
    def one_leaves(writer: PlanWriter, x: int) -> None:
        write(writer, x)
        order(writer, COMPUTE, MEMORY)
        writer.offload(x, 0, extent=LEFT)
        writer.prefetch(x, 0, on_demand=True)

    assert plan_of(writer, one_leaves).endswith("bytes 4 to 9 of x is prefetched but not on the host")


def test_what_lies_in_another_buffer_has_no_memory_to_give_back_in_parts(writer: PlanWriter) -> None:
    def laid(writer: PlanWriter, x: int) -> None:
        y = name(writer, "y")
        writer.alias(y, x)
        writer.release_extent(y, LEFT)

    assert plan_of(writer, laid).endswith("(release bytes 0 to 3 of y): y lies in x and has no memory of its own")


def test_what_lies_in_another_buffer_may_leave_in_parts(writer: PlanWriter) -> None:
    x, y = take(writer, "x"), name(writer, "y")
    writer.alias(y, x)
    both_leave(writer, y)
    order(writer, MEMORY, COMPUTE)
    writer.release(y)
    writer.release(x)
    check_plan(finished(writer))
