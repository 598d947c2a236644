"""Chunked copies: makes a plan whose copies move buffers piece by piece of one that moves them whole.

Each copy by a copy engine becomes a row of copies of at most so many bytes. Memory that is given back once it was
offloaded goes chunk by chunk: where the compute stream is about to wait for the whole copy, it waits for one chunk
after the other and gives each back at once. So no kernel waits longer than before, but for what the host takes to issue
more operations, and no operation finds less memory. What comes back lies in memory that is taken as a whole: beside
which kernels each of its chunks could come is for a policy to say (`vdnnsim.plans.operations.AllocateExtent`).
"""

from collections.abc import Sequence
from dataclasses import replace

from vdnnsim.plans import operations
from vdnnsim.plans.operations import Operation, Stream
from vdnnsim.plans.order import StreamOrder
from vdnnsim.plans.training_plan import TrainingPlan


def in_chunks(plan: TrainingPlan, chunk_bytes: int) -> TrainingPlan:
    """Return a plan with its copies in chunks; it needs a memory model that gives back extents of buffers.

    A chunk is the most that a copy moves, best a multiple of the granule in which memory is given back.
    """
    assert chunk_bytes > 0, "a chunk holds something"
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
        # By position of an offload, the waits and releases of its chunks; the last goes with the rest of the buffer.
        self._leaving: dict[int, list[Operation]] = {}

    def write(self, position: int) -> None:
        """Write what becomes of the operation at a position."""
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
        for offload in [each for each in self._leaving if each <= waited_for]:
            self.operations += self._leaving.pop(offload)
        self.operations.append(operation)

    def _write_copy(self, position: int, copy: operations.Offload | operations.Prefetch) -> None:
        nbytes = self._plan.copied_bytes(copy)
        firsts = range(0, nbytes, self._chunk_bytes)
        if len(firsts) < 2:  # one chunk is the whole
            self.operations.append(copy)
            return
        chunks = [range(first, min(first + self._chunk_bytes, nbytes)) for first in firsts]
        goes = isinstance(copy, operations.Offload) and self._is_released_next(copy.buffer, position)
        for chunk in chunks:
            self.operations.append(replace(copy, extent=chunk))
            if goes and chunk is not chunks[-1]:
                self._event += 1
                self.operations.append(operations.RecordEvent(self._event, Stream.MEMORY))
                going = self._leaving.setdefault(position, [])
                going += [
                    operations.WaitEvent(self._event, Stream.COMPUTE),
                    operations.ReleaseExtent(copy.buffer, chunk),
                ]

    def _is_released_next(self, buffer: int, position: int) -> bool:
        """Return whether a buffer with memory of its own is given back before anything else happens to it."""
        later = self._plan.operations[position + 1 :]
        touching = (each for each in later if buffer in _touched(each))
        return buffer not in self._aliased and isinstance(next(touching, None), operations.Release)


def _touched(operation: Operation) -> Sequence[int]:
    match operation:
        case operations.Compute(reads=reads, writes=writes):
            return reads + writes
        case operations.AllReduce(buffers=buffers):
            return buffers
        case operations.Alias(buffer=buffer, storage=storage):
            return buffer, storage
        case operations.RecordEvent() | operations.WaitEvent() | operations.HostSynchronize():
            return ()
        case _:
            return (operation.buffer,)
