"""`base`: the network-wide allocation that vDNN is compared with (MICRO 2016, II-C and IV-A).

Everything is allocated before the first kernel and held to the end: all feature maps, W and dW of all layers, one
workspace as large as the largest that any kernel wants, and the minimal number of gradient-map buffers, reused in
backward. In a linear network those are two, each as large as the largest gradient map (Fig. 2). A network with forks
needs a few more; each further one is as large as the first map that needed it.
"""

from typing import ClassVar

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.liveness import maps_touched
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
    writer = _NetworkWideWriter(workload, kernels)
    writer.write()
    return writer.plan.finish(label, algorithms)


class _NetworkWideWriter:
    def __init__(self, workload: Workload, kernels: KernelChoice) -> None:
        self.plan = PlanWriter(workload)
        self._workload = workload
        self._layers = workload.graph.layers
        self._kernels = kernels
        self._buffers = IterationBuffers(self.plan, workload)
        self._slots = _GradientSlots(workload)
        self._slot_ids: list[int] = []
        self._workspace: int | None = None

    def write(self) -> None:
        """Write the whole iteration."""
        self._allocate()
        for layer in self._layers:
            self._kernel(layer, Phase.FORWARD)
        if self._workload.mode is Mode.TRAINING:
            for layer in reversed(self._layers):
                self._backward(layer)
            for layer in self._workload.updated_layers:
                self._kernel(layer, Phase.UPDATE)
        self._release()

    def _allocate(self) -> None:
        self._buffers.allocate_resident()
        for each in self._workload.graph.maps:
            self.plan.allocate(self._buffers.maps[each.index], each.producer or 0, Phase.FORWARD)
        for number, (nbytes, owner) in enumerate(self._slots.sizes, start=1):
            slot = self.plan.buffer(f"gradient slot {number}", BufferKind.GRADIENT_MAP, nbytes, owner.stage)
            whole = Phase.BACKWARD in owner.backward_phases
            self.plan.allocate(slot, owner.index, Phase.BACKWARD if whole else Phase.BACKWARD_DATA)
            self._slot_ids.append(slot)
        (greediest, phase), largest = max(self._kernels.items(), key=lambda item: item[1].workspace_bytes)
        if largest.workspace_bytes:
            stage = self._layers[greediest].stage
            self._workspace = self.plan.buffer("workspace", BufferKind.WORKSPACE, largest.workspace_bytes, stage)
            self.plan.allocate(self._workspace, greediest, phase)

    def _backward(self, layer: Layer) -> None:
        for born in self._slots.born[layer.index]:
            self.plan.alias(self._buffers.gradients[born], self._slot_ids[self._slots.slot_of[born]])
        for phase in layer.backward_phases:
            self._kernel(layer, phase)
        for dying in self._slots.dying[layer.index]:
            self.plan.release(self._buffers.gradients[dying])

    def _kernel(self, layer: Layer, phase: Phase) -> None:
        kernel = self._kernels[layer.index, phase]
        self._buffers.compute(layer, phase, kernel, self._workspace if kernel.workspace_bytes else None)

    def _release(self) -> None:
        if self._workspace is not None:
            self.plan.release(self._workspace)
        for buffer in self._slot_ids + self._buffers.maps:
            self.plan.release(buffer)
        self._buffers.release_resident()


class _GradientSlots:
    """Assigns gradient maps to reused buffers, best fit first.

    Attributes:
        sizes: bytes of each slot with the layer on whose account it stands.
        slot_of: the slot of each gradient map.
        born, dying: by layer, the gradient maps that its backward begins and that end with it.
    """

    def __init__(self, workload: Workload) -> None:
        layers = workload.graph.layers
        self.sizes: list[tuple[int, Layer]] = []
        self.slot_of: dict[int, int] = {}
        self.born: list[list[int]] = [[] for _ in layers]
        self.dying: list[list[int]] = [[] for _ in layers]
        if workload.mode is Mode.INFERENCE:
            return
        gradients = [each for each in workload.graph.maps if each.needs_gradient]
        largest = max(gradients, key=lambda each: workload.map_bytes(each.index))
        assert largest.producer is not None
        self.sizes = [(workload.map_bytes(largest.index), layers[largest.producer])] * min(2, len(gradients))
        free = set(range(len(self.sizes)))
        for layer in reversed(layers):
            for phase in layer.backward_phases:
                for x in maps_touched(workload, layer, phase).gradients_written:
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
        self.sizes.append((nbytes, layer))
        return len(self.sizes) - 1
