"""`base`: the network-wide allocation that vDNN is compared with (MICRO 2016, II-C and IV-A).

Everything is allocated before the first kernel and held to the end: all feature maps, W and dW of all layers, one
workspace as large as the largest that any kernel wants, and the minimal number of gradient-map buffers, reused in
backward. In a linear network those are two, each as large as the largest gradient map (Fig. 2). A network with forks
needs a few more; each further one is as large as the first map that needed it.
"""

from typing import ClassVar

from vdnnsim.dnn.layers import Layer, Phase, Stage
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.liveness import operands
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.algorithms import Algorithms, KernelChoice, choose_kernels
from vdnnsim.policies.buffers import IterationBuffers
from vdnnsim.policies.port import Policy, Setting


class Base(Policy, frozen=True, kw_only=True):
    """Keep everything on the GPU."""

    name: ClassVar[str] = "base"
    summary: ClassVar[str] = "network-wide allocation, nothing is offloaded (vDNN paper, IV-A)"

    algorithms: Algorithms = Algorithms.PERFORMANCE_OPTIMAL

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels of one rule."""
        kernels = choose_kernels(setting.workload, setting.costs, self.algorithms)
        return network_wide_plan(setting.workload, kernels, label=self.label, algorithms=self.algorithms.value)


def network_wide_plan(workload: Workload, kernels: KernelChoice, *, label: str, algorithms: str) -> TrainingPlan:
    """Write the plan of a network that stays on the GPU as a whole."""
    writer = PlanWriter(workload)
    buffers = IterationBuffers(writer, workload)
    slots = _GradientSlots(workload)
    layers = workload.graph.layers

    buffers.allocate_resident()
    for each in workload.graph.maps:
        writer.allocate(buffers.maps[each.index], each.producer or 0, Phase.FORWARD)
    slot_ids = []
    for number, (nbytes, layer, stage) in enumerate(slots.sizes, start=1):
        slot = writer.buffer(f"gradient slot {number}", BufferKind.GRADIENT_MAP, nbytes, stage)
        writer.allocate(slot, layer, Phase.BACKWARD_DATA)
        slot_ids.append(slot)
    (largest_layer, largest_phase), largest = max(kernels.items(), key=lambda item: item[1].workspace_bytes)
    workspace = None
    if largest.workspace_bytes:
        stage = layers[largest_layer].stage
        workspace = writer.buffer("workspace", BufferKind.WORKSPACE, largest.workspace_bytes, stage)
        writer.allocate(workspace, largest_layer, largest_phase)

    def run(layer: Layer, phase: Phase) -> None:
        kernel = kernels[layer.index, phase]
        buffers.compute(layer, phase, kernel, workspace if kernel.workspace_bytes else None)

    for layer in layers:
        run(layer, Phase.FORWARD)
    if workload.mode is Mode.TRAINING:
        for layer in reversed(layers):
            for born in slots.born[layer.index]:
                writer.alias(buffers.gradients[born], slot_ids[slots.slot_of[born]])
            for phase in layer.backward_phases:
                run(layer, phase)
            for dying in slots.dying[layer.index]:
                writer.release(buffers.gradients[dying])
        for layer in layers:
            if Phase.UPDATE in workload.phases(layer):
                run(layer, Phase.UPDATE)

    if workspace is not None:
        writer.release(workspace)
    for slot in slot_ids:
        writer.release(slot)
    for buffer in buffers.maps:
        writer.release(buffer)
    buffers.release_resident()
    return writer.finish(label, algorithms)


class _GradientSlots:
    """Assigns gradient maps to reused buffers, best fit first.

    Attributes:
        sizes: bytes of each slot with the layer and stage on whose account it stands.
        slot_of: the slot of each gradient map.
        born, dying: by layer, the gradient maps that its backward begins and that end with it.
    """

    def __init__(self, workload: Workload) -> None:
        layers = workload.graph.layers
        self.sizes: list[tuple[int, int, Stage]] = []
        self.slot_of: dict[int, int] = {}
        self.born: list[list[int]] = [[] for _ in layers]
        self.dying: list[list[int]] = [[] for _ in layers]
        if workload.mode is Mode.INFERENCE:
            return
        gradients = [each for each in workload.graph.maps if each.needs_gradient]
        largest = max(gradients, key=lambda each: workload.map_bytes(each.index))
        assert largest.producer is not None
        self.sizes = [(workload.map_bytes(largest.index), largest.producer, largest.stage)] * min(2, len(gradients))
        free = set(range(len(self.sizes)))
        for layer in reversed(layers):
            if Phase.BACKWARD_DATA in layer.backward_phases:
                for x in operands(workload, layer, Phase.BACKWARD_DATA).gradients_written:
                    if x not in self.slot_of:
                        self.born[layer.index].append(x)
                        self.slot_of[x] = self._take(free, workload.map_bytes(x), layer)
            ended = layer.output
            if not layer.in_place and ended in self.slot_of:
                self.dying[layer.index].append(ended)
                free.add(self.slot_of[ended])

    def _take(self, free: set[int], nbytes: int, layer: Layer) -> int:
        fitting = [slot for slot in free if self.sizes[slot][0] >= nbytes]
        if fitting:
            slot = min(fitting, key=lambda slot: (self.sizes[slot][0], slot))
            free.remove(slot)
            return slot
        self.sizes.append((nbytes, layer.index, layer.stage))
        return len(self.sizes) - 1
