"""Plans written by hand, one operation at a time: what a test of the plan check needs to say briefly what it means."""

from dataclasses import replace

import pytest

from tests.plan_writer import PlanWriter
from tests.toy import touching, toy_chain, toy_workload
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Operation, Stream
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan

F, W = Phase.FORWARD, Phase.BACKWARD_WEIGHTS
COMPUTE, MEMORY = Stream.COMPUTE, Stream.MEMORY
WORKLOAD = toy_workload(toy_chain(1))


def name(writer: PlanWriter, label: str, *, given: bool = False) -> int:
    """Name a buffer of 10 B."""
    return writer.buffer(label, BufferKind.FEATURE_MAP, 10, Stage.FEATURES, given=given)


def take(writer: PlanWriter, label: str, *, given: bool = False) -> int:
    """Name and allocate a buffer."""
    buffer = name(writer, label, given=given)
    writer.allocate(buffer, 0, F)
    return buffer


def write(writer: PlanWriter, *buffers: int) -> None:
    """Let a kernel write buffers."""
    writer.compute(0, F, "only", touching(writes=buffers))


def read(writer: PlanWriter, *buffers: int) -> None:
    """Let a kernel read buffers."""
    writer.compute(0, W, "only", touching(reads=buffers))


def order(writer: PlanWriter, first: Stream, then: Stream) -> None:
    """Let one stream wait for all that another has been given so far."""
    writer.wait(writer.record(first), then)


def refusal(plan: TrainingPlan) -> str:
    """Return what the check says of a plan that it refuses."""
    with pytest.raises(PlanError) as failure:
        check_plan(plan)
    return str(failure.value)


def finished(writer: PlanWriter) -> TrainingPlan:
    """Return the plan."""
    return writer.finish("hand", "m")


def with_operations(plan: TrainingPlan, operations: list[Operation]) -> TrainingPlan:
    """Return a plan with other operations."""
    return replace(plan, operations=tuple(operations))


def round_trip() -> TrainingPlan:
    """Write x (0, 1), copy it to the host (2 to 4), release it (5 to 7), fetch it (8 to 11) and read it (12 to 15)."""
    writer = PlanWriter(WORKLOAD)
    x = take(writer, "x")
    write(writer, x)
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0)
    order(writer, MEMORY, COMPUTE)
    writer.release(x)
    writer.allocate(x, 0, W)
    order(writer, COMPUTE, MEMORY)
    writer.prefetch(x, 0, on_demand=False)
    order(writer, MEMORY, COMPUTE)
    read(writer, x)
    writer.release(x)
    return finished(writer)
