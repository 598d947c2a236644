"""The iteration of Kim et al. (2018): maps leave and come back beside the kernels, with no synchronization of layers.

An offload starts with the last forward reader of its map (Fig. 2: Swap-out(n) beside FWD(n+1)). The memory is given
back when a later request would not fit without it, oldest first, or else just before the map comes back: only then does
the compute stream wait for the copy. That is what an allocator does which waits for memory that is about to be freed,
as TensorFlow's; it counts bytes, as the ideal pool does, and knows of no gaps.

Each map comes back at its trigger (Fig. 6), a number of steps before the first backward that reads it; a step is the
backward of one layer that is not in place. A map without a trigger depends on nothing but its own offload and follows
it at once (Fig. 5): it never leaves the GPU, and frees nothing.

Source: Kim, Lee, Kim, Je, Roh, "Efficient Multi-GPU Memory Management for Deep Learning Acceleration", 2018, III-B and
III-C. How TensorFlow frees memory under a copy is not in the paper; the rule above is an assumption.
"""

from collections.abc import Mapping

from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.plan.liveness import last_backward_use, last_forward_use, needed_in_backward, operands
from vdnnsim.plan.operations import Stream
from vdnnsim.plan.placement import MemoryLimits
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.algorithms import KernelChoice
from vdnnsim.policies.buffers import IterationBuffers


def asynchronous_plan(
    workload: Workload,
    kernels: KernelChoice,
    triggers: Mapping[int, int | None],
    limits: MemoryLimits,
    *,
    label: str,
    algorithms: str,
) -> TrainingPlan:
    """Write the plan that offloads the maps in `triggers`.

    A trigger says how many steps before its first backward reader a map comes back, 1 or more; None for no trigger. One
    that would lie before backward lies at its beginning.
    """
    writer = _AsynchronousWriter(workload, kernels, triggers, limits)
    writer.write()
    return writer.plan.finish(label, algorithms)


def backward_steps(workload: Workload) -> tuple[int, ...]:
    """Return the layers whose backward is a step, in the order of backward."""
    return tuple(
        layer.index for layer in reversed(workload.graph.layers) if layer.backward_phases and not layer.in_place
    )


def steps_before_backward_use(workload: Workload, feature_map: FeatureMap) -> int:
    """Return how many steps precede the first backward that reads a map, which may be that of an in-place layer."""
    return _steps_before(backward_steps(workload), feature_map)


def _steps_before(steps: tuple[int, ...], feature_map: FeatureMap) -> int:
    first_reader = max(feature_map.saved_for)
    return sum(index > first_reader for index in steps)


class _AsynchronousWriter:
    def __init__(
        self, workload: Workload, kernels: KernelChoice, triggers: Mapping[int, int | None], limits: MemoryLimits
    ) -> None:
        self.plan = PlanWriter(workload)
        self._workload = workload
        self._layers = workload.graph.layers
        self._kernels = kernels
        self._limits = limits
        self._buffers = IterationBuffers(self.plan, workload)
        self._in_use_bytes = 0
        self._offloads: list[list[int]] = [[] for _ in self._layers]
        self._drops: list[list[int]] = [[] for _ in self._layers]
        self._last_reads: list[list[int]] = [[] for _ in self._layers]
        self._untriggered = {index for index, lead in triggers.items() if lead is None}
        # By layer with whose backward they come back.
        self._fetches: list[list[int]] = [[] for _ in self._layers]
        # Maps on their way to the host, oldest first, and on their way back, with the event that marks the arrival.
        self._leaving: dict[int, int] = {}
        self._coming: dict[int, int] = {}
        self._begun_gradients: set[int] = set()
        steps = backward_steps(workload)
        for each in workload.graph.maps:
            if not needed_in_backward(workload, each):
                self._drops[last_forward_use(each)].append(each.index)
                continue
            self._last_reads[last_backward_use(each)].append(each.index)
            if each.index in triggers:
                self._offloads[last_forward_use(each)].append(each.index)
                lead = triggers[each.index]
                if lead is not None:
                    step = max(0, _steps_before(steps, each) - lead)
                    # The later a map was made the sooner backward reads it: of those that come back together the first.
                    self._fetches[steps[step]].insert(0, each.index)

    def write(self) -> None:
        """Write the whole iteration."""
        for buffer, owner in self._buffers.resident:
            self._allocate(buffer, self._layers[owner], Phase.FORWARD)
        self._allocate(self._buffers.maps[0], self._layers[0], Phase.FORWARD)
        for layer in self._layers:
            self._forward(layer)
        if self._workload.mode is Mode.TRAINING:
            for layer in reversed(self._layers):
                self._backward(layer)
            for layer in self._workload.updated_layers:
                self._kernel(layer, Phase.UPDATE)
        self._buffers.release_resident()

    def _forward(self, layer: Layer) -> None:
        if not layer.in_place:
            self._allocate(self._buffers.maps[layer.output], layer, Phase.FORWARD)
        leaving = self._offloads[layer.index]
        ready = self.plan.record(Stream.COMPUTE) if leaving else None
        self._kernel(layer, Phase.FORWARD)
        if ready is not None:
            self.plan.wait(ready, Stream.MEMORY)
            for index in leaving:
                self.plan.offload(self._buffers.maps[index], layer.index)
                if index in self._untriggered:
                    self._copy_back(index, layer, on_demand=False)
                else:
                    self._leaving[index] = self.plan.record(Stream.MEMORY)
        for index in self._drops[layer.index]:
            self._release(self._buffers.maps[index])

    def _backward(self, layer: Layer) -> None:
        for index in self._fetches[layer.index]:
            self._fetch(index, layer)
        for index in layer.saved_maps:
            if index in self._coming:
                self.plan.wait(self._coming.pop(index), Stream.COMPUTE)
        for phase in layer.backward_phases:
            for index in operands(self._workload, layer, phase).gradients_written:
                if index not in self._begun_gradients:
                    self._begun_gradients.add(index)
                    self._allocate(self._buffers.gradients[index], layer, phase)
            self._kernel(layer, phase)
        for index in self._last_reads[layer.index]:
            self._release(self._buffers.maps[index])
        if not layer.in_place and layer.output in self._begun_gradients:
            self._release(self._buffers.gradients[layer.output])

    def _fetch(self, index: int, layer: Layer) -> None:
        if index in self._leaving:
            self._give_back(index)
        self._allocate(self._buffers.maps[index], layer, layer.backward_phases[0])
        self._copy_back(index, layer, on_demand=index in layer.saved_maps)

    def _copy_back(self, index: int, layer: Layer, *, on_demand: bool) -> None:
        """Fetch a map once the compute stream has come to this point."""
        self.plan.wait(self.plan.record(Stream.COMPUTE), Stream.MEMORY)
        self.plan.prefetch(self._buffers.maps[index], layer.index, on_demand=on_demand)
        self._coming[index] = self.plan.record(Stream.MEMORY)

    def _kernel(self, layer: Layer, phase: Phase) -> None:
        kernel = self._kernels[layer.index, phase]
        if not kernel.workspace_bytes:
            self._buffers.compute(layer, phase, kernel, None)
            return
        name = f"workspace of {layer.name}"
        workspace = self.plan.buffer(name, BufferKind.WORKSPACE, kernel.workspace_bytes, layer.stage)
        self._allocate(workspace, layer, phase)
        self._buffers.compute(layer, phase, kernel, workspace)
        self._release(workspace)

    def _allocate(self, buffer: int, layer: Layer, phase: Phase) -> None:
        size_bytes = self._size_bytes(buffer)
        while self._leaving and self._in_use_bytes + size_bytes > self._limits.device_bytes:
            self._give_back(next(iter(self._leaving)))
        self._in_use_bytes += size_bytes
        self.plan.allocate(buffer, layer.index, phase)

    def _release(self, buffer: int) -> None:
        self._in_use_bytes -= self._size_bytes(buffer)
        self.plan.release(buffer)

    def _give_back(self, index: int) -> None:
        self.plan.wait(self._leaving.pop(index), Stream.COMPUTE)
        self._release(self._buffers.maps[index])

    def _size_bytes(self, buffer: int) -> int:
        return round_up(self.plan.nbytes(buffer), self._limits.granule_bytes)
