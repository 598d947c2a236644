from tests.plan_writer import PlanWriter
from tests.toy import touching, toy_chain, toy_workload
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.plans.operations import (
    Alias,
    Allocate,
    Compute,
    HostSynchronize,
    Offload,
    Prefetch,
    RecordEvent,
    Release,
    Stream,
    WaitEvent,
)
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan

WORKLOAD = toy_workload(toy_chain(1))


def test_a_plan_holds_what_was_written_in_its_order() -> None:
    """Buffers are numbered in the order in which they are named, events in that in which they are recorded."""
    writer = PlanWriter(WORKLOAD)
    x = writer.buffer("x", BufferKind.FEATURE_MAP, 10, Stage.FEATURES, given=True)
    y = writer.buffer("y", BufferKind.GRADIENT_MAP, 20, Stage.CLASSIFIER)
    writer.allocate(x, 0, Phase.FORWARD)
    writer.alias(y, x)
    writer.compute(1, Phase.BACKWARD_DATA, "gemm", touching(reads=[x], writes=(buffer for buffer in (x, y))))
    first = writer.record(Stream.COMPUTE)
    writer.wait(first, Stream.MEMORY)
    writer.offload(x, 0)
    writer.prefetch(x, 1, on_demand=True)
    second = writer.record(Stream.MEMORY)
    writer.wait(second, Stream.COMPUTE)
    writer.synchronize()
    writer.release(y)
    writer.release(x)

    assert (x, y, first, second) == (0, 1, 0, 1)
    plan = writer.finish("mine", "p")
    assert plan.layers == ("conv1", "fc", "loss")
    assert plan.layer_stages == (Stage.FEATURES, Stage.CLASSIFIER, Stage.CLASSIFIER)
    assert plan == TrainingPlan(
        workload=WORKLOAD,
        policy="mine",
        algorithms="p",
        buffers=(
            Buffer("x", BufferKind.FEATURE_MAP, 10, Stage.FEATURES, given=True),
            Buffer("y", BufferKind.GRADIENT_MAP, 20, Stage.CLASSIFIER, given=False),
        ),
        operations=(
            Allocate(0, 0, Phase.FORWARD),
            Alias(1, 0),
            Compute(1, Phase.BACKWARD_DATA, "gemm", touching(reads=[0], writes=[0, 1])),
            RecordEvent(0, Stream.COMPUTE),
            WaitEvent(0, Stream.MEMORY),
            Offload(0, 0),
            Prefetch(0, 1, on_demand=True),
            RecordEvent(1, Stream.MEMORY),
            WaitEvent(1, Stream.COMPUTE),
            HostSynchronize((Stream.COMPUTE, Stream.MEMORY)),
            Release(1),
            Release(0),
        ),
    )


def test_a_finished_plan_does_not_change_when_writing_goes_on() -> None:
    writer = PlanWriter(WORKLOAD)
    early = writer.finish("static", "m")
    writer.buffer("late", BufferKind.WORKSPACE, 1, Stage.FEATURES)
    writer.synchronize()

    assert (early.buffers, early.operations, early.passes) == ((), (), ())
    assert len(writer.finish("static", "m").operations) == 1


def test_the_size_of_a_buffer_can_be_asked_for() -> None:
    writer = PlanWriter(WORKLOAD)
    writer.buffer("x", BufferKind.FEATURE_MAP, 10, Stage.FEATURES)
    y = writer.buffer("y", BufferKind.FEATURE_MAP, 20, Stage.FEATURES)

    assert writer.nbytes(y) == 20


def test_names_of_buffers_by_id() -> None:
    writer = PlanWriter(WORKLOAD)
    for name in ("x", "y"):
        writer.buffer(name, BufferKind.FEATURE_MAP, 1, Stage.FEATURES)

    assert writer.finish("static", "m").buffer_names == ("x", "y")
