"""Chunked copies: turns the copies of a plan into copies of bounded size.

Where the compute stream waits for an offload and releases the buffer, it waits for one chunk after the other and
releases each at once. So kernels wait no longer, issue time aside, and no operation finds less memory. A prefetched
buffer is allocated as a whole; only a policy can say when each of its chunks is needed
(`vdnnsim.plans.operations.AllocateExtent`).
"""

from collections.abc import Sequence
from dataclasses import replace

from vdnnsim.plans import operations
from vdnnsim.plans.operations import Operation, Stream
from vdnnsim.plans.order import StreamOrder
from vdnnsim.plans.training_plan import TrainingPlan


def in_chunks(plan: TrainingPlan, chunk_bytes: int) -> TrainingPlan:
    """Return a plan with its whole copies in chunks, for a memory model with extents.

    A copy moves at most `chunk_bytes`, best a multiple of the granule of the memory model.
    """
    assert chunk_bytes > 0
    writer = _ChunkWriter(plan, chunk_bytes)
    for position in range(len(plan.operations)):
        writer.write(position)
    return replace(plan, operations=tuple(writer.operations))


class _ChunkWriter:
    def __init__(self, plan: TrainingPlan, chunk_bytes: int) -> None:
        self.operations: list[Operation] = []
        self._plan = plan
        self._chunk_bytes = chunk_bytes
        self._order = StreamOrder()
        self._event = max(
            (each.event for each in plan.operations if isinstance(each, operations.RecordEvent)), default=-1
        )
        self._aliased: set[int] = set()
        # By position of an offload, the waits and releases of its chunks but the last, released with the buffer.
        self._freed_chunks: dict[int, list[Operation]] = {}

    def write(self, position: int) -> None:
        operation = self._plan.operations[position]
        match operation:
            case (
                operations.Offload(extent=None, mechanism=operations.Pinned())
                | operations.Prefetch(extent=None, mechanism=operations.Pinned())
            ):
                self._order.run(Stream.MEMORY, position)
                self._write_copy(position, operation)
                return
            case operations.RecordEvent(event=event, stream=stream):
                self._order.record(event, stream)
            case operations.WaitEvent(event=event, stream=stream):
                self._order.wait(event, stream)
            case operations.HostSynchronize(streams=streams):
                self._order.synchronize(streams)
            case operations.Alias(buffer=buffer):
                self._aliased.add(buffer)
            case operations.Release(buffer=buffer):
                self._aliased.discard(buffer)
            case _:
                pass
        waited_for = self._order.reach(Stream.COMPUTE)[Stream.MEMORY]
        for offload in [each for each in self._freed_chunks if each <= waited_for]:
            self.operations += self._freed_chunks.pop(offload)
        self.operations.append(operation)

    def _write_copy(self, position: int, copy: operations.Offload | operations.Prefetch) -> None:
        nbytes = self._plan.copied_bytes(copy)
        firsts = range(0, nbytes, self._chunk_bytes)
        if len(firsts) < 2:  # one chunk is the whole
            self.operations.append(copy)
            return
        chunks = [range(first, min(first + self._chunk_bytes, nbytes)) for first in firsts]
        is_freed = isinstance(copy, operations.Offload) and self._is_released_next(copy.buffer, position)
        for chunk in chunks:
            self.operations.append(replace(copy, extent=chunk))
            if is_freed and chunk is not chunks[-1]:
                self._event += 1
                self.operations.append(operations.RecordEvent(self._event, Stream.MEMORY))
                wait = operations.WaitEvent(self._event, Stream.COMPUTE)
                self._freed_chunks.setdefault(position, []).extend((wait, operations.ReleaseExtent(copy.buffer, chunk)))

    def _is_released_next(self, buffer: int, position: int) -> bool:
        """Return whether the next operation on a buffer with memory of its own is its Release."""
        later = self._plan.operations[position + 1 :]
        touching = (each for each in later if buffer in _touched(each))
        return buffer not in self._aliased and isinstance(next(touching, None), operations.Release)


def _touched(operation: Operation) -> Sequence[int]:
    match operation:
        case operations.Compute(reads=reads, writes=writes) | operations.Communicate(reads=reads, writes=writes):
            return reads + writes
        case operations.AllReduce(buffers=buffers):
            return buffers
        case operations.Alias(buffer=buffer, storage=storage):
            return buffer, storage
        case operations.RecordEvent() | operations.WaitEvent() | operations.HostSynchronize():
            return ()
        case _:
            return (operation.buffer,)
