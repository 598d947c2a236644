"""The buffers of one iteration and the kernels over them, as all policies of this package write them."""

from dataclasses import replace

from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.writer import PlanWriter


def workspace_operand(workspace: int | None) -> tuple[Operand, ...]:
    """Return a workspace as an operand, if there is one."""
    return () if workspace is None else (Operand(Role.WORKSPACE, workspace, Access.WRITE),)


class IterationBuffers:
    """Buffer ids of a workload: feature maps and their gradients by map, weights and the like by layer.

    Attributes:
        maps: buffer of feature map i.
        gradients: buffer of the gradient of feature map i, for those that have one.
        resident: buffers that hold from iteration to iteration (W, optimizer states) or throughout one (dW, batch
            statistics), with the index of their layer.
    """

    def __init__(self, writer: PlanWriter, workload: Workload) -> None:
        self._writer = writer
        self._step = workload.step
        # A buffer for each storage of the step, by its number.
        self._buffers = [
            writer.buffer(each.name, each.kind, each.nbytes, each.stage, given=each.given, storage=number)
            for number, each in enumerate(self._step.storages)
        ]
        pairs = list(zip(self._step.storages, self._buffers, strict=True))
        self.maps = [buffer for each, buffer in pairs if each.kind is BufferKind.FEATURE_MAP]
        self.gradients = {each.owner: buffer for each, buffer in pairs if each.kind is BufferKind.GRADIENT_MAP}
        of_maps = (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP)
        self.resident = [(buffer, each.owner) for each, buffer in pairs if each.kind not in of_maps]

    def allocate_resident(self) -> None:
        """Allocate W, dW, optimizer states and statistics, which a framework does before the first iteration."""
        for buffer, layer in self.resident:
            self._writer.allocate(buffer, layer, Phase.FORWARD)

    def release_resident(self) -> None:
        """Release W, dW, optimizer states and statistics, so that an iteration ends as it began."""
        for buffer, _ in self.resident:
            self._writer.release(buffer)

    def operands(self, layer: Layer, phase: Phase) -> tuple[Operand, ...]:
        """Return the buffers that a phase of a layer touches, by their roles, the workspace aside."""
        return tuple(
            replace(each, memory=self._buffers[self._step.tensors[each.memory].storage])
            for each in self._step.operation(layer.index, phase).operands
        )

    def touched(self, layer: Layer, phase: Phase) -> tuple[list[int], list[int]]:
        """Return the buffers that a phase of a layer reads and those that it writes, the workspace aside."""
        operands = self.operands(layer, phase)
        reads = [each.memory for each in operands if each.access.reads]
        return reads, [each.memory for each in operands if each.access.writes]

    def compute(
        self,
        layer: Layer,
        phase: Phase,
        kernel: KernelCost,
        workspace: int | None,
        *,
        repeat: int = 0,
        barrier_s: float = 0.0,
    ) -> None:
        """Launch the kernel of a phase of a layer over its buffers and the workspace, if it has one."""
        operands = (*self.operands(layer, phase), *workspace_operand(workspace))
        self._writer.compute(layer.index, phase, kernel.algorithm, operands, repeat=repeat, barrier_s=barrier_s)

    def compute_with_workspace(self, layer: Layer, phase: Phase, kernel: KernelCost) -> None:
        """Launch the kernel of a phase of a layer; the workspace that it may want is allocated for it alone."""
        if not kernel.workspace_bytes:
            self.compute(layer, phase, kernel, None)
            return
        name = f"workspace of {layer.name}"
        workspace = self._writer.buffer(name, BufferKind.WORKSPACE, kernel.workspace_bytes, layer.stage)
        self._writer.allocate(workspace, layer.index, phase)
        self.compute(layer, phase, kernel, workspace)
        self._writer.release(workspace)
