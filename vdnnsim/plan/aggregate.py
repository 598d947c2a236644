"""Data-parallel training: adds to the plan of one GPU what it exchanges with the others.

After the last kernel that writes the weight gradient of a layer, the gradient is summed over all GPUs on the
communication stream, beside what backward of the other layers computes; before the first kernel that reads a sum, and
before the end of the iteration, the compute stream waits; before a sum is offloaded the memory stream does. This is a
function of plans, so every policy has it.
"""

from dataclasses import replace
from itertools import product

from vdnnsim.plan.operations import (
    Aggregation,
    AllReduce,
    Compute,
    Offload,
    Operation,
    RecordEvent,
    Release,
    Stream,
    WaitEvent,
)
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan


def aggregate_gradients(plan: TrainingPlan, aggregation: Aggregation) -> TrainingPlan:
    """Return the plan with an exchange of every weight gradient; all GPUs must write theirs in the same order."""
    last_writer = {
        buffer: position
        for position, operation in enumerate(plan.operations)
        if isinstance(operation, Compute)
        for buffer in operation.writes
        if plan.buffers[buffer].kind is BufferKind.WEIGHT_GRADIENT
    }
    event = 1 + max((each.event for each in plan.operations if isinstance(each, RecordEvent)), default=-1)
    operations: list[Operation] = []
    # By stream and buffer that is being exchanged, the event that marks its end.
    awaited: dict[tuple[Stream, int], int] = {}
    collectives = 0
    for position, operation in enumerate(plan.operations):
        stream, touched = _touched(operation)
        operations.extend(
            WaitEvent(awaited.pop((stream, buffer)), stream) for buffer in touched if (stream, buffer) in awaited
        )
        operations.append(operation)
        if not isinstance(operation, Compute):
            continue
        ready = tuple(buffer for buffer in operation.writes if last_writer.get(buffer) == position)
        if ready:
            operations += [
                RecordEvent(event, Stream.COMPUTE),
                WaitEvent(event, Stream.COMMUNICATION),
                AllReduce(collectives, ready, operation.layer, aggregation),
                RecordEvent(event + 1, Stream.COMMUNICATION),
            ]
            awaited |= dict.fromkeys(product((Stream.COMPUTE, Stream.MEMORY), ready), event + 1)
            event += 2
            collectives += 1
    return replace(plan, operations=tuple(operations))


def _touched(operation: Operation) -> tuple[Stream, tuple[int, ...]]:
    """Return the buffers whose content an operation reads or gives up, and its stream."""
    match operation:
        case Compute(reads=reads):
            return Stream.COMPUTE, reads
        case Release(buffer=buffer):
            return Stream.COMPUTE, (buffer,)
        case Offload(buffer=buffer):
            return Stream.MEMORY, (buffer,)
        case _:
            return Stream.COMPUTE, ()
