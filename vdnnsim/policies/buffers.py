"""The buffers of one iteration and the kernels over them, as all policies of this package write them."""

from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.liveness import operands
from vdnnsim.plan.training_plan import BufferKind
from vdnnsim.plan.writer import PlanWriter


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
        self._workload = workload
        training = workload.mode is Mode.TRAINING
        self.maps = [
            writer.buffer(
                f"map {each.name}",
                BufferKind.FEATURE_MAP,
                workload.map_bytes(each.index),
                each.stage,
                given=each.producer is None,
                of=each.index,
            )
            for each in workload.graph.maps
        ]
        self.gradients = {
            each.index: writer.buffer(
                f"gradient of {each.name}",
                BufferKind.GRADIENT_MAP,
                workload.map_bytes(each.index),
                each.stage,
                of=each.index,
            )
            for each in workload.graph.maps
            if training and each.needs_gradient
        }
        self._weights: dict[int, int] = {}
        self._weight_gradients: dict[int, int] = {}
        self._states: dict[int, tuple[int, ...]] = {}
        self._statistics: dict[int, int] = {}
        self.resident: list[tuple[int, int]] = []
        for layer in workload.graph.layers:
            if layer.parameters:
                self._add_weights(layer, training=training)
            if statistics_bytes := workload.statistics_bytes(layer):
                self._statistics[layer.index] = self._add_resident(
                    "statistics", BufferKind.STATISTICS, layer, statistics_bytes, given=not training
                )

    def _add_weights(self, layer: Layer, *, training: bool) -> None:
        nbytes = self._workload.weight_bytes(layer)

        def add(name: str, kind: BufferKind) -> int:
            return self._add_resident(name, kind, layer, nbytes, given=kind is not BufferKind.WEIGHT_GRADIENT)

        self._weights[layer.index] = add("weights", BufferKind.WEIGHTS)
        if training:
            self._weight_gradients[layer.index] = add("weight gradient", BufferKind.WEIGHT_GRADIENT)
            states = range(1, self._workload.optimizer.states + 1)
            self._states[layer.index] = tuple(add(f"state {i}", BufferKind.OPTIMIZER_STATE) for i in states)

    def _add_resident(self, name: str, kind: BufferKind, layer: Layer, nbytes: int, *, given: bool) -> int:
        buffer = self._writer.buffer(f"{name} of {layer.name}", kind, nbytes, layer.stage, given=given, of=layer.index)
        self.resident.append((buffer, layer.index))
        return buffer

    def allocate_resident(self) -> None:
        """Allocate W, dW, optimizer states and statistics, which a framework does before the first iteration."""
        for buffer, layer in self.resident:
            self._writer.allocate(buffer, layer, Phase.FORWARD)

    def release_resident(self) -> None:
        """Release W, dW, optimizer states and statistics, so that an iteration ends as it began."""
        for buffer, _ in self.resident:
            self._writer.release(buffer)

    def touched(self, layer: Layer, phase: Phase) -> tuple[list[int], list[int]]:
        """Return the buffers that a phase of a layer reads and those that it writes, the workspace aside."""
        touched = operands(self._workload, layer, phase)
        reads = [self.maps[i] for i in touched.maps_read] + [self.gradients[i] for i in touched.gradients_read]
        writes = [self.maps[i] for i in touched.maps_written] + [self.gradients[i] for i in touched.gradients_written]
        owner = layer.index if layer.weights_of is None else layer.weights_of
        if touched.weights_read:
            reads.append(self._weights[owner])
        if touched.weights_written:
            writes.append(self._weights[owner])
            writes.extend(self._states[owner])
        if touched.weight_gradient_read:
            reads.append(self._weight_gradients[owner])
            reads.extend(self._states[owner] if phase is Phase.UPDATE else ())
        if touched.weight_gradient_written:
            writes.append(self._weight_gradients[owner])
        if touched.statistics_read:
            reads.append(self._statistics[layer.index])
        if touched.statistics_written:
            writes.append(self._statistics[layer.index])
        return reads, writes

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
        reads, writes = self.touched(layer, phase)
        if workspace is not None:
            writes.append(workspace)
        self._writer.compute(
            layer.index, phase, kernel.algorithm, reads=reads, writes=writes, repeat=repeat, barrier_s=barrier_s
        )

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
