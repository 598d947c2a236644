"""A map goes to the host and comes back: which of these operations a plan cannot do without, or have twice."""

import pytest

from tests.plan_writer import PlanWriter
from tests.unit.plans.hand_written import finished, refusal, round_trip, with_operations
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Allocate, Compute, Offload, Operation, Prefetch, RecordEvent, Release, WaitEvent


def test_a_plan_without_operations_keeps_the_contract(writer: PlanWriter) -> None:
    check_plan(finished(writer))


def test_a_map_that_goes_to_the_host_and_comes_back_keeps_the_contract() -> None:
    check_plan(round_trip())


ROUND_TRIP_WITHOUT = [
    (0, "operation 0 (forward of conv1 (only)): x is used while it is not allocated"),
    (1, "operation 3 (offload of x during forward of conv1): x is offloaded before anything was written to it"),
    (2, "operation 2 (wait for event 0 on the memory stream): event 0 is waited for before it is recorded"),
    (
        3,
        (
            "operation 3 (offload of x during forward of conv1): "
            "x is offloaded before the memory stream waited for its kernel"
        ),
    ),
    (4, "operation 10 (prefetch of x during backward of conv1): x is prefetched but not on the host"),
    (5, "operation 5 (wait for event 1 on the compute stream): event 1 is waited for before it is recorded"),
    (6, "operation 6 (release x): x is released before the compute stream waited for its copy"),
    (7, "operation 7 (allocate x): x is allocated twice"),
    (8, "operation 10 (prefetch of x during backward of conv1): x is used while it is not allocated"),
    (9, "operation 9 (wait for event 2 on the memory stream): event 2 is waited for before it is recorded"),
    (
        10,
        (
            "operation 10 (prefetch of x during backward of conv1): "
            "x is prefetched before the memory stream waited for its allocation"
        ),
    ),
    (11, "operation 13 (backward weights of conv1 (only)): x is read before anything was written to it"),
    (12, "operation 12 (wait for event 3 on the compute stream): event 3 is waited for before it is recorded"),
    (
        13,
        "operation 13 (backward weights of conv1 (only)): x is read before the compute stream waited for its prefetch",
    ),
    (15, "operation 14 (backward weights of conv1 (only)): x is still allocated at the end"),
]


@pytest.mark.parametrize(("deleted", "message"), ROUND_TRIP_WITHOUT)
def test_without_any_one_of_its_operations_the_round_trip_breaks_the_contract(deleted: int, message: str) -> None:
    """Positions count the plan that is left, so what stood behind the deleted operation stands one lower.

    Operation 14, the kernel that reads x at the end, may go: the check does not know which kernels a network needs.
    """
    plan = round_trip()

    broken = with_operations(plan, [op for i, op in enumerate(plan.operations) if i != deleted])

    assert refusal(broken) == f"hand: {message}"


def test_what_the_round_trip_can_do_without() -> None:
    assert {deleted for deleted, _ in ROUND_TRIP_WITHOUT} == set(range(16)) - {14}
    plan = round_trip()
    check_plan(with_operations(plan, [op for i, op in enumerate(plan.operations) if i != 14]))


@pytest.mark.parametrize(
    ("doubled", "message"),
    [
        (Allocate, "operation 1 (allocate x): x is allocated twice"),
        (RecordEvent, "operation 3 (record event 0 on the compute stream): event 0 is recorded twice"),
        (Offload, "operation 5 (offload of x during forward of conv1): x is offloaded twice"),
        (Release, "operation 8 (release x): x is used while it is not allocated"),
        (Prefetch, "operation 12 (prefetch of x during backward of conv1): x is prefetched but not on the host"),
    ],
)
def test_what_must_not_be_done_twice(doubled: type[Operation], message: str) -> None:
    """The first operation of the kind is issued twice in a row."""
    plan = round_trip()
    first = next(i for i, op in enumerate(plan.operations) if isinstance(op, doubled))
    operations = list(plan.operations)
    operations.insert(first, operations[first])

    assert refusal(with_operations(plan, operations)) == f"hand: {message}"


@pytest.mark.parametrize("doubled", [Compute, WaitEvent])
def test_what_may_be_done_twice(doubled: type[Operation]) -> None:
    """A kernel may be recomputed, and a second wait for an event finds it reached."""
    plan = round_trip()
    first = next(i for i, op in enumerate(plan.operations) if isinstance(op, doubled))
    operations = list(plan.operations)
    operations.insert(first, operations[first])

    check_plan(with_operations(plan, operations))
