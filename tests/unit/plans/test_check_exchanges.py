"""Exchanges of gradients: which operations around one a plan cannot do without, and what may not touch its buffer."""

from dataclasses import replace

import pytest

from tests.plan_writer import PlanWriter
from tests.toy import touching
from tests.unit.plans.hand_written import COMPUTE, MEMORY, F, W, refusal, take, with_operations
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import (
    Aggregation,
    Allocate,
    AllReduce,
    Compute,
    HostSynchronize,
    Offload,
    Operation,
    Prefetch,
    RecordEvent,
    Release,
    Stream,
    WaitEvent,
)
from vdnnsim.plans.training_plan import TrainingPlan

COMMUNICATION = Stream.COMMUNICATION
EXCHANGE = AllReduce(0, (0,), 0, Aggregation.CPU)
WRITE, READ = Compute(0, W, "only", touching(writes=[0])), Compute(0, F, "only", touching(reads=[0]))
EXCHANGED: tuple[Operation, ...] = (
    Allocate(0, 0, F),
    WRITE,
    RecordEvent(0, COMPUTE),
    WaitEvent(0, COMMUNICATION),
    EXCHANGE,
    RecordEvent(1, COMMUNICATION),
    WaitEvent(1, COMPUTE),
    READ,
    Release(0),
)
"""dW is written, exchanged (operation 4), waited for (6) and read."""
UNORDERED = EXCHANGED[:5]


@pytest.fixture
def plan(writer: PlanWriter) -> TrainingPlan:
    """Its one buffer is dW."""
    take(writer, "dW")
    return replace(writer.finish("hand", "m"), operations=EXCHANGED)


def test_an_exchange_between_its_kernels_keeps_the_contract(plan: TrainingPlan) -> None:
    check_plan(plan)


@pytest.mark.parametrize(
    ("deleted", "message"),
    [
        (0, "operation 0 (backward weights of conv1 (only)): dW is used while it is not allocated"),
        (
            1,
            (
                "operation 3 (aggregation of the gradients of conv1 (cpu)): "
                "dW is exchanged before anything was written to it"
            ),
        ),
        (2, "operation 2 (wait for event 0 on the communication stream): event 0 is waited for before it is recorded"),
        (
            3,
            (
                "operation 3 (aggregation of the gradients of conv1 (cpu)): "
                "dW is exchanged before the stream waited for its kernel"
            ),
        ),
        (5, "operation 5 (wait for event 1 on the compute stream): event 1 is waited for before it is recorded"),
        (6, "operation 6 (forward of conv1 (only)): dW is read before the compute stream waited for its exchange"),
        (8, "operation 7 (forward of conv1 (only)): dW is still allocated at the end"),
    ],
)
def test_without_any_one_of_its_operations_it_breaks_the_contract(
    plan: TrainingPlan, deleted: int, message: str
) -> None:
    """Positions count the plan that is left; the exchange itself and the kernel that reads the sum may go."""
    assert refusal(with_operations(plan, [op for i, op in enumerate(EXCHANGED) if i != deleted])) == f"hand: {message}"


@pytest.mark.parametrize(
    ("operation", "what"),
    [
        (WRITE, "written before the compute stream waited for its copy"),
        (READ, "read before the compute stream waited for its exchange"),
        (Release(0), "released before the compute stream waited for its copy"),
        (Offload(0, 0), "offloaded before the memory stream waited for its exchange"),
        (Prefetch(0, 0, on_demand=True), "prefetched but not on the host"),
    ],
)
def test_what_is_exchanged_is_left_alone(plan: TrainingPlan, operation: Operation, what: str) -> None:
    """The memory stream knows of the kernel that wrote dW, and nobody of the end of the exchange."""
    operations = [*UNORDERED, WaitEvent(0, MEMORY), operation]

    assert refusal(with_operations(plan, operations)).endswith(f": dW is {what}")


def test_a_sum_is_offloaded_after_its_exchange(plan: TrainingPlan) -> None:
    after = (WaitEvent(1, MEMORY), Offload(0, 0), HostSynchronize((MEMORY,)), Release(0))

    check_plan(with_operations(plan, [*EXCHANGED[:6], *after]))


@pytest.mark.parametrize("waits", [True, False])
def test_what_is_on_its_way_is_exchanged_when_it_is_there(plan: TrainingPlan, *, waits: bool) -> None:
    """An offload of dW, which only reads it; the exchange writes it, and so waits for the memory stream."""
    copy = (WaitEvent(0, MEMORY), Offload(0, 0), RecordEvent(2, MEMORY))
    order = (WaitEvent(2, COMMUNICATION),) if waits else ()
    operations = [*EXCHANGED[:3], *copy, *order, *EXCHANGED[3:]]

    if waits:
        check_plan(with_operations(plan, operations))
    else:
        assert refusal(with_operations(plan, operations)) == (
            "hand: operation 7 (aggregation of the gradients of conv1 (cpu)): "
            "dW is exchanged before the stream waited for its copy"
        )


def test_a_sum_makes_the_copy_on_the_host_stale(plan: TrainingPlan) -> None:
    """The copy was taken of the GPU's own gradient, so it does not bring back the sum."""
    copy = (WaitEvent(0, MEMORY), Offload(0, 0), RecordEvent(2, MEMORY), WaitEvent(2, COMMUNICATION))
    back = (WaitEvent(1, MEMORY), Prefetch(0, 0, on_demand=True))

    message = refusal(with_operations(plan, [*EXCHANGED[:3], *copy, *EXCHANGED[3:6], *back]))
    assert message.endswith("dW is prefetched but not on the host")
