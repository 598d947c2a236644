"""`caffe`: BVLC Caffe, the baseline of Layrub (Jin et al., TACO 2018, 5.1): activations and gradients network-wide.

A blob holds data and diff, and every blob lives from the first iteration to the last. So each feature map has its
gradient map; layers in place share the blob of their input. Where several layers read a map Caffe inserts a Split,
whose outputs share the data and have a diff each (src/caffe/layers/split_layer.cpp): a map of n readers has n + 1
diffs. Counted so, with batch normalization in place, ResNet-152 at batch 32 has the 11.61 GB (GiB) of Table 1.

Caffe's batch normalization keeps a copy of what it normalized all the same, data and diff: here its X and dX, which
stand among the maps and gradients. Its temporary maps (`vdnnsim.policies.caffe_layers`), which are no blobs of the
network either, count as statistics of their layer.
"""

from typing import ClassVar

from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.algorithms import KernelChoice
from vdnnsim.policies.buffers import IterationBuffers
from vdnnsim.policies.caffe_layers import ResidentBuffers, cudnn_handles, kernels_within
from vdnnsim.policies.port import Policy, Setting
from vdnnsim.policies.shared_workspace import SharedWorkspace


class Caffe(Policy, frozen=True, kw_only=True):
    """Keep every blob."""

    name: ClassVar[str] = "caffe"
    summary: ClassVar[str] = "network-wide activations and gradients, as Caffe allocates them (Layrub paper, 5.1)"

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels that Caffe's limit of workspace admits."""
        kernels = kernels_within(setting.workload, setting.costs)
        writer = _CaffeWriter(setting.workload, kernels)
        writer.write()
        return writer.plan.finish(self.label, "limited", handles=cudnn_handles(setting.workload))


class _CaffeWriter:
    def __init__(self, workload: Workload, kernels: KernelChoice) -> None:
        self.plan = PlanWriter(workload)
        self._workload = workload
        self._layers = workload.graph.layers
        self._kernels = kernels
        self._buffers = IterationBuffers(self.plan, workload)
        self._resident = ResidentBuffers(self.plan, workload, self._buffers)
        self._workspace = SharedWorkspace(self.plan, workload, kernels)
        # What the end of an iteration releases, last taken first.
        self._taken: list[int] = []

    def write(self) -> None:
        """Write the whole iteration."""
        self._allocate()
        for layer in self._layers:
            self._kernel(layer, Phase.FORWARD)
        if self._workload.mode is Mode.TRAINING:
            for layer in reversed(self._layers):
                for phase in layer.backward_phases:
                    self._kernel(layer, phase)
            for layer in self._workload.updated_layers:
                self._kernel(layer, Phase.UPDATE)
        for buffer in reversed(self._taken):
            self.plan.release(buffer)
        self._workspace.release()
        self._resident.release()

    def _allocate(self) -> None:
        self._resident.allocate()
        for each in self._workload.graph.maps:
            self._take(self._buffers.maps[each.index], each.producer or 0, Phase.FORWARD)
            if each.index in self._buffers.gradients:
                self._take_diffs(each)
        self._workspace.allocate()

    def _take_diffs(self, feature_map: FeatureMap) -> None:
        buffer, last_reader = self._buffers.gradients[feature_map.index], self._layers[feature_map.consumers[-1]]
        readers = len(feature_map.consumers)
        if readers == 1:
            self._take(buffer, last_reader.index, last_reader.backward_phases[0])
            return
        nbytes = (1 + readers) * self.plan.nbytes(buffer)
        diffs = self.plan.buffer(f"diffs of {feature_map.name}", BufferKind.GRADIENT_MAP, nbytes, feature_map.stage)
        self._take(diffs, last_reader.index, last_reader.backward_phases[0])
        self.plan.alias(buffer, diffs)
        self._taken.append(buffer)

    def _take(self, buffer: int, layer: int, phase: Phase) -> None:
        self.plan.allocate(buffer, layer, phase)
        self._taken.append(buffer)

    def _kernel(self, layer: Layer, phase: Phase) -> None:
        self._buffers.compute(layer, phase, self._kernels[layer.index, phase], self._workspace.of(layer, phase))
