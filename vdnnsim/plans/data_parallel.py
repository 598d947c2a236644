"""Data-parallel training: adds gradient exchanges to the plan of one GPU.

After the last kernel that writes the weight gradient of a layer, the gradient is summed over all GPUs on the
communication stream, beside backward of other layers. The compute stream waits before the first kernel that reads a
sum and at the end of the iteration, the memory stream before it offloads one. An exchange has the gradients that one
kernel completes, or under `ddp` a bucket (`vdnnsim.plans.buckets`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from vdnnsim.plans.buckets import Buckets, Exchanges, with_bucket_memory, with_bucket_views
from vdnnsim.plans.operations import (
    Aggregation,
    AllReduce,
    Compute,
    Offload,
    Operation,
    RecordEvent,
    Release,
    ReleaseExtent,
    Stream,
    WaitEvent,
)
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan


def aggregate_gradients(plan: TrainingPlan, aggregation: Aggregation) -> TrainingPlan:
    """Return the plan with an exchange of every weight gradient; all GPUs must write theirs in the same order."""
    ready = _ready(plan)
    if aggregation.has_buckets:
        exchanging = _exchanging(plan, aggregation, _in_buckets(plan, ready))
        return with_bucket_memory(exchanging) if aggregation is Aggregation.DDP else with_bucket_views(exchanging)
    return _exchanging(plan, aggregation, {position: (gradients,) for position, gradients in ready.items()})


def _ready(plan: TrainingPlan) -> dict[int, tuple[int, ...]]:
    """Return the weight gradients by the position of the last kernel that writes them."""
    last_writer = {
        buffer: position
        for position, operation in enumerate(plan.operations)
        if isinstance(operation, Compute)
        for buffer in operation.writes
        if plan.buffers[buffer].kind is BufferKind.WEIGHT_GRADIENT
    }
    ready: dict[int, tuple[int, ...]] = {}
    for buffer, position in last_writer.items():
        ready[position] = (*ready.get(position, ()), buffer)
    return ready


def _in_buckets(plan: TrainingPlan, ready: Mapping[int, tuple[int, ...]]) -> Exchanges:
    buckets = Buckets(plan)
    for position, operation in enumerate(plan.operations):
        _, touched = _touched(operation)
        buckets.give_up(touched)
        for gradient in ready.get(position, ()):
            buckets.add(gradient, position)
    return buckets.finish()


def _exchanging(plan: TrainingPlan, aggregation: Aggregation, exchanges: Exchanges) -> TrainingPlan:
    event = 1 + max((each.event for each in plan.operations if isinstance(each, RecordEvent)), default=-1)
    operations: list[Operation] = []
    # By stream and buffer that is being exchanged, the event at its end; and the buffers of each event.
    awaited: dict[tuple[Stream, int], int] = {}
    ending: dict[int, tuple[int, ...]] = {}
    collectives = 0
    for position, operation in enumerate(plan.operations):
        stream, touched = _touched(operation)
        for end in dict.fromkeys(awaited[stream, each] for each in touched if (stream, each) in awaited):
            operations.append(WaitEvent(end, stream))
            for each in ending[end]:
                del awaited[stream, each]
        operations.append(operation)
        for gradients in exchanges.get(position, ()):
            assert isinstance(operation, Compute)
            operations += [
                RecordEvent(event, Stream.COMPUTE),
                WaitEvent(event, Stream.COMMUNICATION),
                AllReduce(collectives, gradients, operation.layer, aggregation),
                RecordEvent(event + 1, Stream.COMMUNICATION),
            ]
            awaited |= dict.fromkeys(product((Stream.COMPUTE, Stream.MEMORY), gradients), event + 1)
            ending[event + 1] = gradients
            event += 2
            collectives += 1
    return replace(plan, operations=tuple(operations))


def _touched(operation: Operation) -> tuple[Stream, tuple[int, ...]]:
    """Return the stream of an operation, and the buffers that it reads or releases."""
    match operation:
        case Compute(reads=reads):
            return Stream.COMPUTE, reads
        case Release(buffer=buffer) | ReleaseExtent(buffer=buffer):
            return Stream.COMPUTE, (buffer,)
        case Offload(buffer=buffer):
            return Stream.MEMORY, (buffer,)
        case _:
            return Stream.COMPUTE, ()


def exchanged(plan: TrainingPlan) -> list[tuple[int, tuple[str, ...]]]:
    names = plan.buffer_names
    exchanges = (each for each in plan.operations if isinstance(each, AllReduce))
    return [(each.layer, tuple(names[buffer] for buffer in each.buffers)) for each in exchanges]


def until_one_overflows(
    plans: Sequence[TrainingPlan], placements: Sequence[Placement | DoesNotFit]
) -> tuple[TrainingPlan, ...]:
    """Return the part of each plan that runs before a GPU is out of memory.

    That GPU reaches no later exchange, and the others wait at the first of these.
    """
    ends = [
        each.operation if isinstance(each, DoesNotFit) else len(plan.operations)
        for plan, each in zip(plans, placements, strict=True)
    ]
    exchanges = [
        [position for position, each in enumerate(plan.operations[:end]) if isinstance(each, AllReduce)]
        for plan, end in zip(plans, ends, strict=True)
    ]
    joint = min(len(each) for each in exchanges)
    return tuple(
        replace(plan, operations=plan.operations[: positions[joint] if len(positions) > joint else end])
        for plan, end, positions in zip(plans, ends, exchanges, strict=True)
    )
