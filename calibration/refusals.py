"""What the executor cannot do: a plan that asks for it is refused, by name.

Copies are made by copy engines, all that is given is filled in before the clock starts, and there is one GPU. Memory of
an extent it gives back where the device can, which PyTorch's allocator on a GPU cannot.
"""

from collections.abc import Iterator
from itertools import chain

from vdnnsim.errors import ExecutionRefused
from vdnnsim.plans import operations
from vdnnsim.plans.operations import Operation, Stream, describe
from vdnnsim.plans.repetition import leading_operations
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.units import Precision

_ONE_TYPE = frozenset({Precision.FLOAT32, Precision.BFLOAT16, Precision.FLOAT16})
"""Precisions in which every kernel computes in the type of the maps. TF32 is a setting of a device here."""
_CANNOT = "this executor cannot do"


def refuse_impossible(plan: TrainingPlan, *, gives_back_extents: bool) -> None:
    """Let a plan pass that can be executed, on a device that can give back extents of memory or not.

    Raises:
        ExecutionRefused: it cannot; the message names the operation or the precision.
    """
    precision = plan.workload.precision
    if precision not in _ONE_TYPE:
        found = f"{plan.workload.graph.name} computes in {precision.value}"
        raise ExecutionRefused(f"{plan.policy}: {found}: {_CANNOT} other precisions than float32, bfloat16 and float16")
    demands = ((position, _impossible(each, gives_back_extents)) for position, each in enumerate(plan.operations))
    late = ((position, "a given buffer that is allocated after the iteration has begun") for position in _late(plan))
    for position, what in chain(demands, late):
        if what:
            text = describe(plan.operations[position], plan.buffer_names, plan.layers)
            raise ExecutionRefused(f"{plan.policy}: operation {position} ({text}): {_CANNOT} {what}")


def _late(plan: TrainingPlan) -> Iterator[int]:
    """Yield where what is given is first allocated behind the head of a plan, after which the clock starts."""
    leading, begun = leading_operations(plan), set[int]()
    for position, operation in enumerate(plan.operations):
        if isinstance(operation, operations.Allocate | operations.Alias):
            buffer = operation.buffer
            if plan.buffers[buffer].given_on_gpu and buffer not in begun and position >= leading:
                yield position
            begun.add(buffer)


def _impossible(operation: Operation, gives_back_extents: bool) -> str:  # noqa: FBT001  # of the device
    """Return what of an operation cannot be done, wherever it stands; empty where it can."""
    match operation:
        case operations.Compute(part=part) if part:
            return "kernels over a part of the batch"
        case operations.AllocateExtent() | operations.ReleaseExtent() if not gives_back_extents:
            return "memory of an extent of a buffer, given back and taken again"
        case operations.Offload(mechanism=operations.Paged()) | operations.Prefetch(mechanism=operations.Paged()):
            return "copies page by page at page faults"
        case (
            operations.AllReduce()
            | operations.RecordEvent(stream=Stream.COMMUNICATION)
            | operations.WaitEvent(stream=Stream.COMMUNICATION)
        ):
            return "what several GPUs exchange"
        case operations.HostSynchronize(streams=streams) if Stream.COMMUNICATION in streams:
            return "what several GPUs exchange"
        case _:
            return ""
