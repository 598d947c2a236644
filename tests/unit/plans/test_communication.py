"""The events between the streams of a plan with collectives, and what the check of plans refuses without them."""

from dataclasses import replace

import pytest

from tests.captured_steps import sharded
from tests.plan_writer import PlanWriter
from tests.toy import touching
from tests.unit.plans.hand_written import WORKLOAD, refusal
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.communication import with_communication
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Alias, Communicate, HostSynchronize, Stream, WaitEvent
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan

F, W = Phase.FORWARD, Phase.BACKWARD_WEIGHTS
COMPUTE, MEMORY, COMMUNICATION = Stream.COMPUTE, Stream.MEMORY, Stream.COMMUNICATION
GATHER = Collective(CollectiveKind.ALL_GATHER, 10, "float32", ranks=2)


class Hand:
    """A plan in the making, on buffers of 10 B."""

    def __init__(self) -> None:
        self.writer = PlanWriter(WORKLOAD)

    def take(self, name: str, *, given: bool = False) -> int:
        buffer = self.writer.buffer(name, BufferKind.FEATURE_MAP, 10, Stage.FEATURES, given=given)
        self.writer.allocate(buffer, 0, F)
        return buffer

    def kernel(self, *, reads: tuple[int, ...] = (), writes: tuple[int, ...] = ()) -> None:
        self.writer.compute(0, F, "only", touching(reads=reads, writes=writes))

    def collective(
        self, *, reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), stream: Stream = COMMUNICATION
    ) -> None:
        self.writer.add(Communicate(0, F, "only", touching(reads=reads, writes=writes), 0, GATHER, stream))

    def plan(self) -> TrainingPlan:
        return self.writer.finish("hand", "m")


def waits(plan: TrainingPlan) -> list[tuple[str, Stream]]:
    """What follows each wait, and the stream that waits."""
    return [
        (describe(plan.operations[position + 1], plan.buffer_names, plan.layers), each.stream)
        for position, each in enumerate(plan.operations)
        if isinstance(each, WaitEvent)
    ]


def test_a_plan_without_collectives_stays_as_it_is() -> None:
    hand = Hand()
    x = hand.take("x")
    hand.kernel(writes=(x,))
    hand.writer.release(x)
    plan = hand.plan()

    assert with_communication(plan) is plan


def test_streams_wait_for_each_other_by_data_alone() -> None:
    """The gather waits for the kernel that wrote x, not for the one on y; the last kernel for the gather.

    z is of the communication stream, which waits for its last reader before it is released.
    """
    hand = Hand()
    x, y, z = (hand.take(name) for name in "xyz")
    hand.kernel(writes=(x,))
    hand.kernel(writes=(y,))
    hand.collective(reads=(x,), writes=(z,))
    hand.kernel(reads=(y,))
    hand.kernel(reads=(z, z))
    hand.kernel(reads=(z,))
    for each in (x, y, z):
        hand.writer.release(each)
    assert "x is exchanged before the stream waited for its kernel" in refusal(hand.plan())

    plan = with_communication(hand.plan())

    check_plan(plan)
    assert [stream for _, stream in waits(plan)] == [COMMUNICATION, COMPUTE, COMMUNICATION]
    assert [what for what, _ in waits(plan)][:2] == [
        "all_gather of 2 ranks in forward of conv1",
        "forward of conv1 (only)",
    ]
    assert [each.stream for each in plan.operations[-3:] if hasattr(each, "stream")] == [
        COMPUTE,
        COMPUTE,
        COMMUNICATION,
    ]
    kernels = [position for position, each in enumerate(plan.operations) if isinstance(each, Communicate)]
    assert isinstance(plan.operations[kernels[0] - 1], WaitEvent)
    # Its event stands right after the first kernel, before the second.
    event = next(each.event for each in plan.operations if isinstance(each, WaitEvent))
    recorded = [getattr(each, "event", None) for each in plan.operations].index(event)
    assert recorded == 4


def test_a_collective_on_the_compute_stream_needs_no_event() -> None:
    hand = Hand()
    x = hand.take("x")
    hand.kernel(writes=(x,))
    hand.collective(reads=(x,), writes=(x,), stream=COMPUTE)
    hand.kernel(reads=(x,))
    hand.writer.release(x)

    plan = with_communication(hand.plan())

    check_plan(plan)
    assert plan == hand.plan()


def test_copies_and_synchronizations_of_a_plan_count() -> None:
    """X goes to the host and back by the plan's own events; what is gathered after waits for the copy back.

    After the host waited for both streams, no collective waits for the kernel before.
    """
    hand = Hand()
    x, y = hand.take("x"), hand.take("y")
    hand.kernel(writes=(x,))
    hand.writer.wait(hand.writer.record(COMPUTE), MEMORY)
    hand.writer.offload(x, 0)
    hand.writer.prefetch(x, 0, on_demand=False)
    hand.collective(reads=(x,))
    hand.writer.wait(hand.writer.record(MEMORY), COMPUTE)
    hand.kernel(writes=(y,))
    hand.writer.add(HostSynchronize((COMPUTE, MEMORY)))
    hand.collective(writes=(y,))
    for each in (x, y):
        hand.writer.release(each)

    plan = with_communication(hand.plan())

    check_plan(plan)
    own = {0, 1}
    added = [each for each in plan.operations if isinstance(each, WaitEvent) and each.event not in own]
    # The last two let the compute stream release x and y.
    assert [each.stream for each in added] == [COMMUNICATION, COMPUTE, COMPUTE]


def test_what_lies_in_another_buffer_waits_for_its_collective() -> None:
    hand = Hand()
    below = hand.take("below")
    above = hand.writer.buffer("above", BufferKind.FEATURE_MAP, 10, Stage.FEATURES)
    hand.kernel(writes=(below,))
    hand.collective(reads=(below,))
    hand.writer.add(Alias(above, below))
    hand.kernel(writes=(above,))
    for each in (above, below):
        hand.writer.release(each)
    assert "covered before the compute stream waited" in refusal(with_waits_of_first_collective(hand))

    check_plan(with_communication(hand.plan()))


def test_an_extent_that_is_released_waits_for_the_collective_on_its_buffer() -> None:
    hand = Hand()
    x = hand.take("x")
    hand.kernel(writes=(x,))
    hand.collective(reads=(x,))
    hand.writer.release_extent(x, range(5))
    hand.writer.release(x)

    plan = with_communication(hand.plan())

    check_plan(plan)
    assert waits(plan)[1] == ("release bytes 0 to 4 of x", COMPUTE)


def with_waits_of_first_collective(hand: Hand) -> TrainingPlan:
    """The plan with an event before its collective, and none after."""
    plan = hand.plan()
    full = with_communication(plan).operations
    last = max(position for position, each in enumerate(full) if isinstance(each, WaitEvent))
    return replace(plan, operations=(*full[:last], *full[last + 1 :]))


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (0, "is exchanged before the stream waited for its kernel"),
        (1, "is read before the compute stream waited for its exchange"),
        (2, "is released before the communication stream waited for its kernel"),
    ],
)
def test_each_event_is_needed(left_out: int, message: str) -> None:
    """Of the plan of the test above: the gather of x, the kernel that reads z, and the release of z."""
    hand = Hand()
    x, z = hand.take("x"), hand.take("z")
    hand.kernel(writes=(x,))
    hand.collective(reads=(x,), writes=(z,))
    hand.kernel(reads=(z,))
    for each in (x, z):
        hand.writer.release(each)
    plan = with_communication(hand.plan())
    found = [position for position, each in enumerate(plan.operations) if isinstance(each, WaitEvent)]
    without = found[left_out]

    changed = replace(plan, operations=(*plan.operations[:without], *plan.operations[without + 1 :]))

    assert message in refusal(changed)


def test_a_collective_reads_what_was_written() -> None:
    hand = Hand()
    x = hand.take("x")
    hand.collective(reads=(x,))

    assert "x is exchanged before anything was written to it" in refusal(with_communication(hand.plan()))


def test_layers_of_a_rank_have_its_collectives() -> None:
    """Copy, gather and copy-out belong to the layer whose weight they gather."""
    step = CapturedWorkload.of(sharded()).step

    assert [each.collective is not None for each in step.operations_of(0, F)] == [False, True, False, False]
