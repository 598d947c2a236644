"""A plan writer for tests, with a method and defaults for each operation."""

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
    def allocate(self, buffer: int, layer: int, phase: Phase) -> None:
        self.add(Allocate(buffer, layer, phase))

    def alias(self, buffer: int, storage: int) -> None:
        self.add(Alias(buffer, storage))

    def release(self, buffer: int) -> None:
        self.add(Release(buffer))

    def allocate_extent(self, buffer: int, extent: range, layer: int, phase: Phase) -> None:
        self.add(AllocateExtent(buffer, extent, layer, phase))

    def release_extent(self, buffer: int, extent: range) -> None:
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
        self.add(Prefetch(buffer, layer, on_demand, keeps_copy, mechanism or Pinned(), copy, extent, phase))

    def wait(self, event: int, stream: Stream) -> None:
        self.add(WaitEvent(event, stream))

    def synchronize(self) -> None:
        """Wait for both streams, as vDNN does at the end of a layer that copied."""
        self.add(HostSynchronize((Stream.COMPUTE, Stream.MEMORY)))
