"""The iteration of a policy that offloads feature maps: what it does whenever the maps leave and come back.

Each buffer is allocated for the first kernel that wants it and released after the last: Y before forward of its layer,
a gradient map before the kernel that begins it, a workspace for its kernel alone. A map that is offloaded leaves beside
the kernel of its last forward reader. When its memory is free and when it comes back is what the subclasses say.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.liveness import last_backward_use, last_forward_use, maps_touched, needed_in_backward
from vdnnsim.plan.operations import Stream
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.algorithms import KernelChoice
from vdnnsim.policies.buffers import IterationBuffers


class OffloadingWriter(ABC):
    """Writes an iteration into `plan`; of the maps named, those leave that backward needs."""

    def __init__(self, plan: PlanWriter, workload: Workload, kernels: KernelChoice, offloaded: Collection[int]) -> None:
        self.plan = plan
        self._workload = workload
        self._layers = workload.graph.layers
        self._kernels = kernels
        self._buffers = IterationBuffers(plan, workload)
        # By layer: maps that leave with its forward, those released after it, and those released after its backward.
        self._offloads: list[list[int]] = [[] for _ in self._layers]
        self._drops: list[list[int]] = [[] for _ in self._layers]
        self._last_reads: list[list[int]] = [[] for _ in self._layers]
        for each in workload.graph.maps:
            if not needed_in_backward(workload, each):
                self._drops[last_forward_use(each)].append(each.index)
                continue
            self._last_reads[last_backward_use(each)].append(each.index)
            if each.index in offloaded:
                self._offloads[last_forward_use(each)].append(each.index)
        self._begun_gradients: set[int] = set()

    def write(self) -> None:
        """Write the whole iteration."""
        self._buffers.allocate_resident()
        self.plan.allocate(self._buffers.maps[0], 0, Phase.FORWARD)
        for layer in self._layers:
            self._forward(layer)
        if self._workload.mode is Mode.TRAINING:
            for layer in reversed(self._layers):
                self._backward(layer)
            for layer in self._workload.updated_layers:
                self._kernel(layer, Phase.UPDATE)
        self._buffers.release_resident()

    @abstractmethod
    def _offload(self, leaving: Sequence[int], layer: Layer) -> None:
        """Copy maps to the host beside the kernel just launched; the memory stream waits for those before it."""

    @abstractmethod
    def _backward(self, layer: Layer) -> None:
        """Fetch maps, compute the gradients of a layer, and release what nobody reads any more."""

    def _forward(self, layer: Layer) -> None:
        if not layer.in_place:
            self.plan.allocate(self._buffers.maps[layer.output], layer.index, Phase.FORWARD)
        leaving = self._offloads[layer.index]
        ready = self.plan.record(Stream.COMPUTE) if leaving else None
        self._kernel(layer, Phase.FORWARD)
        if ready is not None:
            self.plan.wait(ready, Stream.MEMORY)
            self._offload(leaving, layer)
        for index in self._drops[layer.index]:
            self.plan.release(self._buffers.maps[index])

    def _compute_gradients(self, layer: Layer) -> None:
        for phase in layer.backward_phases:
            for index in maps_touched(self._workload, layer, phase).gradients_written:
                if index not in self._begun_gradients:
                    self._begun_gradients.add(index)
                    self.plan.allocate(self._buffers.gradients[index], layer.index, phase)
            self._kernel(layer, phase)

    def _release_last_reads(self, layer: Layer) -> None:
        for index in self._last_reads[layer.index]:
            self.plan.release(self._buffers.maps[index])
        if not layer.in_place and layer.output in self._begun_gradients:
            self.plan.release(self._buffers.gradients[layer.output])

    def _kernel(self, layer: Layer, phase: Phase) -> None:
        self._buffers.compute_with_workspace(layer, phase, self._kernels[layer.index, phase])
