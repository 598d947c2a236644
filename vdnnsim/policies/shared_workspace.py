"""One workspace for all kernels of an iteration, as large as the greediest of them wants."""

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.training_plan import BufferKind
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.algorithms import KernelChoice


class SharedWorkspace:
    """A workspace held throughout an iteration; none where no kernel wants any."""

    def __init__(self, writer: PlanWriter, workload: Workload, kernels: KernelChoice) -> None:
        self._writer = writer
        self._kernels = kernels
        self._greediest, largest = max(kernels.items(), key=lambda item: item[1].workspace_bytes)
        self._buffer: int | None = None
        if largest.workspace_bytes:
            stage = workload.graph.layers[self._greediest[0]].stage
            self._buffer = writer.buffer("workspace", BufferKind.WORKSPACE, largest.workspace_bytes, stage)

    def allocate(self) -> None:
        """Allocate it, if any kernel wants one."""
        if self._buffer is not None:
            self._writer.allocate(self._buffer, *self._greediest)

    def release(self) -> None:
        """Release it."""
        if self._buffer is not None:
            self._writer.release(self._buffer)

    def of(self, layer: Layer, phase: Phase) -> int | None:
        """Return what a kernel is handed; None if it wants none."""
        return self._buffer if self._kernels[layer.index, phase].workspace_bytes else None
