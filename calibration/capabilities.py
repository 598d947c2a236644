"""What the executor can do, and the refusal, by name, of a plan that asks for more."""

from collections.abc import Iterator
from enum import Enum

from vdnnsim.cost.table import ONLY
from vdnnsim.dnn.layers import Phase
from vdnnsim.element_type import Precision
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plans.operations import (
    Alias,
    Allocate,
    AllocateExtent,
    AllReduce,
    Compute,
    HostSynchronize,
    Offload,
    Operation,
    Paged,
    Prefetch,
    RecordEvent,
    ReleaseExtent,
    Stream,
    WaitEvent,
    describe,
)
from vdnnsim.plans.repetition import leading_operations
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan


class Capability(Enum):
    """What plans may ask for and not every executor can do."""

    SPLIT_BACKWARD = "a backward in two halves"
    NAMED_ALGORITHMS = "algorithms by name"
    WORKSPACES = "workspaces as buffers of the plan"
    ALIASES = "buffers laid into others, as a gradient over an activation"
    SEVERAL_GPUS = "what several GPUs exchange"
    PAGED_COPIES = "copies page by page at page faults"
    PARTS_OF_A_BATCH = "kernels over a part of the batch"
    EXTENTS_OF_MEMORY = "memory of an extent of a buffer, given back and taken again"
    LATE_CONTENT = "a given buffer that is allocated after the iteration has begun"
    OTHER_PRECISIONS = "other precisions than float32, bfloat16 and float16"


EXECUTOR_CAPABILITIES = frozenset(
    {
        Capability.SPLIT_BACKWARD,
        Capability.NAMED_ALGORITHMS,
        Capability.WORKSPACES,
        Capability.ALIASES,
        Capability.EXTENTS_OF_MEMORY,
    }
)
"""What `calibration.executor` can do: copies are made by copy engines, and all that is given is filled in before.

It gives back extents of memory where the device can, which PyTorch's allocator on a GPU cannot.
"""

_ONE_TYPE = frozenset({Precision.FLOAT32, Precision.BFLOAT16, Precision.FLOAT16})
"""Precisions in which every kernel computes in the type of the maps. TF32 is a setting of a device here."""


def refuse_more_than(capabilities: frozenset[Capability], plan: TrainingPlan) -> None:
    """Let a plan pass that asks for these capabilities alone.

    Raises:
        ExecutionRefused: it asks for another; the message names the operation or the precision that does.
    """
    precision = plan.workload.precision
    if precision not in _ONE_TYPE and Capability.OTHER_PRECISIONS not in capabilities:
        found = f"{plan.workload.graph.name} computes in {precision.value}"
        raise ExecutionRefused(f"{plan.policy}: {found}: this executor cannot do {Capability.OTHER_PRECISIONS.value}")
    for position, operation in enumerate(plan.operations):
        for demand in _demands(plan, operation):
            if demand not in capabilities:
                raise _refusal(plan, position, demand)
    if Capability.LATE_CONTENT in capabilities:
        return
    # They come before the clock starts.
    leading = leading_operations(plan)
    begun: set[int] = set()
    for position, operation in enumerate(plan.operations):
        if isinstance(operation, Allocate | Alias):
            buffer = operation.buffer
            if plan.buffers[buffer].given_on_gpu and buffer not in begun and position >= leading:
                raise _refusal(plan, position, Capability.LATE_CONTENT)
            begun.add(buffer)


def _demands(plan: TrainingPlan, operation: Operation) -> Iterator[Capability]:
    match operation:
        case Compute(phase=phase, algorithm=algorithm, part=part):
            if phase in (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS):
                yield Capability.SPLIT_BACKWARD
            if algorithm != ONLY:
                yield Capability.NAMED_ALGORITHMS
            if part:
                yield Capability.PARTS_OF_A_BATCH
        case Allocate(buffer=buffer) if plan.buffers[buffer].kind is BufferKind.WORKSPACE:
            yield Capability.WORKSPACES
        case Alias():
            yield Capability.ALIASES
        case AllocateExtent() | ReleaseExtent():
            yield Capability.EXTENTS_OF_MEMORY
        case Offload(mechanism=Paged()) | Prefetch(mechanism=Paged()):
            yield Capability.PAGED_COPIES
        case AllReduce() | RecordEvent(stream=Stream.COMMUNICATION) | WaitEvent(stream=Stream.COMMUNICATION):
            yield Capability.SEVERAL_GPUS
        case HostSynchronize(streams=streams) if Stream.COMMUNICATION in streams:
            yield Capability.SEVERAL_GPUS
        case _:
            pass


def _refusal(plan: TrainingPlan, position: int, demand: Capability) -> ExecutionRefused:
    text = describe(plan.operations[position], plan.buffer_names, plan.layers)
    return ExecutionRefused(f"{plan.policy}: operation {position} ({text}): this executor cannot do {demand.value}")
