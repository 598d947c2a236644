"""Writes a plan operation by operation: hands out ids, remembers names, keeps the pairs of events together."""

from collections.abc import Iterable

from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.step import Operand
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.operations import (
    Alias,
    Allocate,
    AllocateExtent,
    Compute,
    HostSynchronize,
    Mechanism,
    Offload,
    Operation,
    Pinned,
    Prefetch,
    RecordEvent,
    Release,
    ReleaseExtent,
    Stream,
    WaitEvent,
)
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan


class PlanWriter:
    """Collects buffers and operations; `finish` freezes them into a `TrainingPlan`."""

    def __init__(self, workload: Workload, buffers: Iterable[Buffer] = ()) -> None:
        """Begin with these buffers, whose ids are their positions."""
        self._workload = workload
        self._buffers = list(buffers)
        self._operations: list[Operation] = []
        self._events = 0

    def buffer(
        self, name: str, kind: BufferKind, nbytes: int, stage: Stage, *, given: bool = False, storage: int | None = None
    ) -> int:
        """Name a buffer and return its id; it takes no memory until it is allocated."""
        self._buffers.append(Buffer(name, kind, nbytes, stage, given, storage))
        return len(self._buffers) - 1

    def nbytes(self, buffer: int) -> int:
        """Return the size of a buffer."""
        return self._buffers[buffer].nbytes

    def allocate(self, buffer: int, layer: int, phase: Phase) -> None:
        """Take memory for a buffer on behalf of a phase of a layer."""
        self._operations.append(Allocate(buffer, layer, phase))

    def alias(self, buffer: int, storage: int) -> None:
        """Lay a buffer into an allocated one."""
        self._operations.append(Alias(buffer, storage))

    def release(self, buffer: int) -> None:
        """Give the memory of a buffer back, or end its alias."""
        self._operations.append(Release(buffer))

    def allocate_extent(self, buffer: int, extent: range, layer: int, phase: Phase) -> None:
        """Take memory again for an extent of a buffer that was given back."""
        self._operations.append(AllocateExtent(buffer, extent, layer, phase))

    def release_extent(self, buffer: int, extent: range) -> None:
        """Give the memory of an extent of a buffer back."""
        self._operations.append(ReleaseExtent(buffer, extent))

    def compute(
        self,
        layer: int,
        phase: Phase,
        algorithm: str,
        operands: Iterable[Operand],
        *,
        repeat: int = 0,
        barrier_s: float = 0.0,
        part: int = 0,
        operation: int = 0,
    ) -> None:
        """Launch a kernel on the compute stream, over a part of the batch or the whole.

        With `repeat`, one that ran before in this iteration.
        """
        self._operations.append(Compute(layer, phase, algorithm, tuple(operands), repeat, barrier_s, part, operation))

    def offload(
        self,
        buffer: int,
        layer: int,
        phase: Phase = Phase.FORWARD,
        *,
        mechanism: Mechanism | None = None,
        copy: int = 0,
        extent: range | None = None,
    ) -> None:
        """Launch a copy to the host on the memory stream, by a copy engine unless told otherwise."""
        self._operations.append(Offload(buffer, layer, phase, mechanism or Pinned(), copy, extent))

    def prefetch(
        self,
        buffer: int,
        layer: int,
        phase: Phase = Phase.BACKWARD,
        *,
        on_demand: bool,
        keeps_copy: bool = False,
        mechanism: Mechanism | None = None,
        copy: int = 0,
        extent: range | None = None,
    ) -> None:
        """Launch a copy from the host on the memory stream, by a copy engine unless told otherwise."""
        self._operations.append(
            Prefetch(buffer, layer, on_demand, keeps_copy, mechanism or Pinned(), copy, extent, phase)
        )

    def record(self, stream: Stream) -> int:
        """Record a new event on a stream and return it."""
        event = self._events
        self._events += 1
        self._operations.append(RecordEvent(event, stream))
        return event

    def wait(self, event: int, stream: Stream) -> None:
        """Hold a stream until an event."""
        self._operations.append(WaitEvent(event, stream))

    def synchronize(self) -> None:
        """Hold the host until both streams are done, as vDNN does at the end of a layer that copied."""
        self._operations.append(HostSynchronize((Stream.COMPUTE, Stream.MEMORY)))

    def finish(self, policy: str, algorithms: str, *, handles: int = 0) -> TrainingPlan:
        """Return the plan."""
        return TrainingPlan(
            workload=self._workload,
            policy=policy,
            algorithms=algorithms,
            buffers=tuple(self._buffers),
            operations=tuple(self._operations),
            handles=handles,
        )
