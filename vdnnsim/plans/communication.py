"""Order between communication and kernels: the events that a plan with collectives of a captured step needs.

The host runs ahead, so a collective waits only for what wrote its inputs and for who still uses its outputs, a kernel
only for the collectives whose results it reads. Each wait is for an event right after what it needs, as those of
PyTorch's FSDP (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from vdnnsim.plans import operations
from vdnnsim.plans.operations import Operation, Stream
from vdnnsim.plans.order import StreamOrder
from vdnnsim.plans.repetition import end_of_work, leading_operations
from vdnnsim.plans.training_plan import TrainingPlan


def with_communication(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan whose streams wait for each other's collectives, and whose memory is of the stream it is used on.

    Memory of the communication stream is what is first used there and is not given, as of PyTorch's allocator.
    """
    if not any(isinstance(each, operations.Communicate) for each in plan.operations):
        return plan
    plan = replace(plan, operations=tuple(_of_streams(plan)))
    waits = _waits(plan)
    first = 1 + max((each.event for each in plan.operations if isinstance(each, operations.RecordEvent)), default=-1)
    # By position of what is waited for, its stream and its event.
    streams = {awaited: stream for all_of_one in waits.values() for _, awaited, stream in all_of_one}
    events = {awaited: event for event, awaited in enumerate(sorted(streams), first)}
    found: list[Operation] = []
    for position, operation in enumerate(plan.operations):
        found += (operations.WaitEvent(events[awaited], stream) for stream, awaited, _ in waits.get(position, ()))
        found.append(operation)
        if position in events:
            found.append(operations.RecordEvent(events[position], streams[position]))
    return replace(plan, operations=tuple(found))


def _of_streams(plan: TrainingPlan) -> Iterator[Operation]:
    """Yield the operations of a plan, each Allocate and Release with the stream of its buffer."""
    streams: dict[int, Stream] = {}
    # By position of an Allocate, the stream of the first operation on its buffer.
    allocated: dict[int, int] = {}
    first: dict[int, Stream] = {}
    for position, each in enumerate(plan.operations):
        if isinstance(each, operations.Allocate) and not plan.buffers[each.buffer].given:
            allocated[each.buffer] = position
        elif isinstance(each, operations.Compute | operations.Communicate):
            stream = each.stream if isinstance(each, operations.Communicate) else Stream.COMPUTE
            for buffer in (*each.reads, *each.writes):
                if buffer in allocated:
                    first[allocated.pop(buffer)] = stream
        elif isinstance(each, operations.Offload | operations.Prefetch):
            allocated.pop(each.buffer, None)
    for position, each in enumerate(plan.operations):
        if isinstance(each, operations.Allocate):
            streams[each.buffer] = first.get(position, Stream.COMPUTE)
            yield _on(each, streams[each.buffer])
        elif isinstance(each, operations.Release):
            yield _on(each, streams.get(each.buffer, Stream.COMPUTE))
        else:
            yield each


def _on(operation: operations.Allocate | operations.Release, stream: Stream) -> Operation:
    # Most are: a copy takes longer than all else here.
    return operation if operation.stream is stream else replace(operation, stream=stream)


@dataclass(slots=True)
class _Uses:
    """The last operations on a buffer by stream: on its content, and those that wrote it, or allocated it."""

    uses: dict[Stream, int] = field(default_factory=dict)
    writes: dict[Stream, int] = field(default_factory=dict)


_Wait = tuple[Stream, int, Stream]
"""The stream that waits, the position of what it waits for, and the stream of that."""


def _waits(plan: TrainingPlan) -> Mapping[int, list[_Wait]]:
    """Return by position the waits that an operation needs before it.

    No event parts the first allocations or the last releases, between which memory is resident.
    """
    order, begin, end = StreamOrder(), leading_operations(plan), end_of_work(plan)
    known = defaultdict[int, _Uses](_Uses)
    waits = defaultdict[int, list[_Wait]](list)
    for position, operation in enumerate(plan.operations):
        match operation:
            case operations.RecordEvent(event=event, stream=stream):
                order.record(event, stream)
                continue
            case operations.WaitEvent(event=event, stream=stream):
                order.wait(event, stream)
                continue
            case operations.HostSynchronize(streams=streams):
                order.synchronize(streams)
                continue
            case _:
                pass
        stream, reads, writes = _touched(operation)
        order.reach(stream)
        needed: dict[Stream, int] = {}
        for buffer in (*reads, *writes):
            before = known[buffer].uses if buffer in writes else known[buffer].writes
            for other, awaited in before.items():
                needed[other] = max(awaited, begin - 1, needed.get(other, awaited))
        # What is later may itself have waited for the others.
        for other, awaited in sorted(needed.items(), key=lambda item: -item[1]):
            if other is not stream and not order.knows(stream, other, awaited):
                waits[min(position, end)].append((stream, awaited, other))
                order.wait(-1 - awaited, stream)
        order.run(stream, position)
        # A plan's own events are numbered from 0 on.
        order.record(-1 - position, stream)
        for buffer in reads:
            known[buffer].uses[stream] = position
        for buffer in writes:
            known[buffer].uses[stream] = known[buffer].writes[stream] = position
    return waits


def _touched(operation: Operation) -> tuple[Stream, tuple[int, ...], tuple[int, ...]]:
    """Return the stream of an operation, and the buffers that it reads, and that it writes, allocates or releases."""
    match operation:
        case operations.Compute(reads=reads, writes=writes):
            return Stream.COMPUTE, reads, writes
        case operations.Communicate(reads=reads, writes=writes, stream=stream):
            return stream, reads, writes
        case operations.Allocate(buffer=buffer, stream=stream) | operations.Release(buffer=buffer, stream=stream):
            return stream, (), (buffer,)
        case operations.Offload(buffer=buffer):
            return Stream.MEMORY, (buffer,), ()
        case operations.Prefetch(buffer=buffer):
            return Stream.MEMORY, (), (buffer,)
        case operations.AllocateExtent(buffer=buffer) | operations.ReleaseExtent(buffer=buffer):
            return Stream.COMPUTE, (), (buffer,)
        case _:
            assert isinstance(operation, operations.Alias), "lowering writes no others"
            return Stream.COMPUTE, (), (operation.buffer, operation.storage)
