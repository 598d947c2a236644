"""Plans that tests write operation by operation, each with what an operation has by default."""

from collections.abc import Iterable

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Operand
from vdnnsim.plans import writer
from vdnnsim.plans.operations import (
    Alias,
    Allocate,
    AllocateExtent,
    Compute,
    HostSynchronize,
    Mechanism,
    Offload,
    Pinned,
    Prefetch,
    Release,
    ReleaseExtent,
    Stream,
    WaitEvent,
)


class PlanWriter(writer.PlanWriter):
    """Writes operations by their names."""

    def allocate(self, buffer: int, layer: int, phase: Phase) -> None:
        """Take memory for a buffer on behalf of a phase of a layer."""
        self.add(Allocate(buffer, layer, phase))

    def alias(self, buffer: int, storage: int) -> None:
        """Lay a buffer into an allocated one."""
        self.add(Alias(buffer, storage))

    def release(self, buffer: int) -> None:
        """Give the memory of a buffer back, or end its alias."""
        self.add(Release(buffer))

    def allocate_extent(self, buffer: int, extent: range, layer: int, phase: Phase) -> None:
        """Take memory again for an extent of a buffer that was given back."""
        self.add(AllocateExtent(buffer, extent, layer, phase))

    def release_extent(self, buffer: int, extent: range) -> None:
        """Give the memory of an extent of a buffer back."""
        self.add(ReleaseExtent(buffer, extent))

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
        self.add(Compute(layer, phase, algorithm, tuple(operands), repeat, barrier_s, part, operation))

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
        self.add(Offload(buffer, layer, phase, mechanism or Pinned(), copy, extent))

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
        self.add(Prefetch(buffer, layer, on_demand, keeps_copy, mechanism or Pinned(), copy, extent, phase))

    def wait(self, event: int, stream: Stream) -> None:
        """Hold a stream until an event."""
        self.add(WaitEvent(event, stream))

    def synchronize(self) -> None:
        """Hold the host until both streams are done, as vDNN does at the end of a layer that copied."""
        self.add(HostSynchronize((Stream.COMPUTE, Stream.MEMORY)))
