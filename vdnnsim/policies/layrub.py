"""The iteration of Layrub (Jin et al., TACO 2018), built on Caffe: reuse within a layer, between layers, or both.

*Within* (3.2, 4.2, 4.3): weight gradients are computed before data gradients, and dX is laid over X, which nobody reads
any more. A rectifier keeps one byte for each element, which goes to host memory and comes back. A barrier between the
two gradients costs 3.05 % of their time, in which Caffe's streams overlap.

*Between* (3.3, 4.1): a few of the largest spaces are the fixed regions that all maps and gradients share; maps of
several readers have regions of their own, and so have their gradients. Every map leaves with forward of its last reader
(reference count zero), beside its kernel; what a layer in place made leaves behind its kernel
(`vdnnsim.policies.layrub_kept`), and so does the normalized map of a batch normalization. While backward of a layer
runs, all that the layer below it left comes back, whether its backward reads it or not. Streams are synchronized at the
end of each layer that copied, and of each layer in backward.

What the paper leaves open: where dX cannot lie over X, for other layers still read it or the kernel itself does, dX
goes to a fixed region, under reuse within layers as well; kernels of batch normalization and pooling may write over
what they read. The diffs of a Split (`vdnnsim.policies.caffe`) lie in regions, and all batch normalizations share the
temporary maps of one. So have the authors, with the copies and waits above (github.com/CGCL-codes/Layrub at 0657919,
src/caffe/net.cpp: ForwardFromTo, BackwardFromTo, interlayer, intralayer). They differ in little: a diff that lies over
no data is taken from the driver and given back in every backward, which may make a copy wait; streams are synchronized
at the end of each layer; the last three layers copy nothing; and a batch normalization is two layers, of which the
second hides what comes back for the first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.operations import Stream
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.algorithms import KernelChoice
from vdnnsim.policies.buffers import IterationBuffers, workspace_operand
from vdnnsim.policies.caffe_layers import ResidentBuffers, cudnn_handles, kernels_within
from vdnnsim.policies.layrub_kept import KeptInPlace, records, temporary_maps
from vdnnsim.policies.layrub_layout import Layout, backward_order, lay_out
from vdnnsim.policies.port import Setting
from vdnnsim.policies.regions import Stay, share_regions
from vdnnsim.policies.shared_workspace import SharedWorkspace

BARRIER_FRACTION: Final = 0.0305
"""Of the time of the weight and the data gradient of a layer with weights, what a barrier between them costs (4.3)."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Which memory is reused."""

    within_layers: bool
    between_layers: bool


def layrub_plan(setting: Setting, reuse: Reuse, *, label: str) -> TrainingPlan:
    """Write the plan of an iteration under Layrub."""
    writer = _LayrubWriter(setting.workload, kernels_within(setting.workload, setting.costs), reuse)
    writer.write()
    return writer.plan.finish(label, "limited", handles=cudnn_handles(setting.workload))


class _LayrubWriter:
    def __init__(self, workload: Workload, kernels: KernelChoice, reuse: Reuse) -> None:
        self.plan = PlanWriter(workload)
        self._workload = workload
        self._layers = workload.graph.layers
        self._kernels = kernels
        self._reuse = reuse
        self._buffers = IterationBuffers(self.plan, workload)
        self._workspace = SharedWorkspace(self.plan, workload, kernels)
        self._resident = ResidentBuffers(self.plan, workload, self._buffers, temporary_maps=not reuse.between_layers)
        self._backward = backward_order(workload)
        self._below = {above.index: below for above, below in pairwise(self._backward)}
        layout = lay_out(
            workload,
            gradient_over_map=reuse.within_layers,
            offload=reuse.between_layers,
            weights_first=reuse.within_layers,
        )
        self._layout = layout
        steps = len(self._layers) + len(self._backward)
        # By step: (buffer, where it lies) of what is laid before it and what is given back after it.
        self._begins: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
        self._ends: list[list[int]] = [[] for _ in range(steps)]
        self._regions: list[int] = []
        for stays in self._pools(layout):
            self._share(stays)
        self._kept = [
            *([records(self.plan, workload)] if reuse.within_layers else []),
            *([temporary_maps(self.plan, workload)] if reuse.between_layers else []),
        ]
        self._gradient_copy = self._copy_of_gradient()

    def write(self) -> None:
        """Write the whole iteration."""
        self._allocate()
        for layer in self._layers:
            self._forward(layer)
        for step, layer in enumerate(self._backward, start=len(self._layers)):
            self._backward_of(layer, step)
        if self._workload.mode is Mode.TRAINING:
            for layer in self._workload.updated_layers:
                self._kernel(layer, Phase.UPDATE)
        self._release()

    def _pools(self, layout: Layout) -> Iterator[list[Stay]]:
        """Yield the stays that share regions: maps of several readers, their gradients, and all others."""
        forked = {each.index for each in self._workload.graph.maps if len(each.consumers) > 1}
        maps = layout.map_stays if self._reuse.between_layers else []
        in_maps = [(index in forked, stay.of_buffer(self._buffers.maps[index])) for index, stay in maps]
        in_gradients = [
            (index in forked, stay.of_buffer(self._buffers.gradients[index])) for index, stay in layout.gradient_stays
        ]
        yield [stay for is_forked, stay in in_maps if is_forked]
        yield [stay for is_forked, stay in in_gradients if is_forked] + layout.split_stays
        yield [stay for is_forked, stay in in_maps + in_gradients if not is_forked]

    def _share(self, stays: list[Stay]) -> None:
        shared = share_regions(stays)
        first = len(self._regions)
        for number, nbytes in enumerate(shared.sizes, start=first + 1):
            stage = self._layers[0].stage
            self._regions.append(self.plan.buffer(f"region {number}", BufferKind.FEATURE_MAP, nbytes, stage))
        for stay, region in zip(stays, shared.region_of, strict=True):
            if stay.buffer is not None:
                self._begins[stay.first].append((stay.buffer, self._regions[first + region]))
                self._ends[stay.last].append(stay.buffer)

    def _copy_of_gradient(self) -> int | None:
        """Name the diff of the normalized map, in which dY is kept where dX comes to lie over it; all share one."""
        normalized = [layer for layer in self._backward if layer.kind is LayerKind.BN]
        if not (normalized and self._reuse.within_layers and self._reuse.between_layers):
            return None
        nbytes = max(self._workload.map_bytes(layer.output) for layer in normalized)
        return self.plan.buffer("copy of dY", BufferKind.STATISTICS, nbytes, normalized[0].stage)

    def _allocate(self) -> None:
        self._resident.allocate()
        for region in self._regions:
            self.plan.allocate(region, 0, Phase.FORWARD)
        for kept in self._kept:
            kept.allocate()
        if self._gradient_copy is not None:
            self.plan.allocate(self._gradient_copy, 0, Phase.FORWARD)
        self._workspace.allocate()
        if not self._reuse.between_layers:
            for each in self._workload.graph.maps:
                self.plan.allocate(self._buffers.maps[each.index], each.producer or 0, Phase.FORWARD)

    def _release(self) -> None:
        if not self._reuse.between_layers:
            for buffer in self._buffers.maps:
                self.plan.release(buffer)
        self._workspace.release()
        if self._gradient_copy is not None:
            self.plan.release(self._gradient_copy)
        for kept in self._kept:
            kept.release()
        for region in self._regions:
            self.plan.release(region)
        self._resident.release()

    def _forward(self, layer: Layer) -> None:
        for buffer, region in self._begins[layer.index]:
            self.plan.alias(buffer, region)
        leaving = [self._buffers.maps[index] for index in self._layout.offloads.get(layer.index, ())]
        kept = self._kept_of(layer)
        if kept is not None:
            leaving.append(kept.enter(layer))
        before = self.plan.record(Stream.COMPUTE) if leaving and kept is None else None
        self._kernel(layer, Phase.FORWARD)
        if leaving:
            self.plan.wait(self.plan.record(Stream.COMPUTE) if before is None else before, Stream.MEMORY)
            for buffer in leaving:
                self.plan.offload(buffer, layer.index)
            self.plan.synchronize()
        if kept is not None:
            kept.leave(layer)
        self._end(layer.index)

    def _backward_of(self, layer: Layer, step: int) -> None:
        for buffer, region in self._begins[step]:
            self.plan.alias(buffer, region)
        kept, below = self._kept_of(layer), self._below.get(layer.index)
        kept_below = None if below is None else self._kept_of(below)
        arriving = [self._buffers.maps[index] for index in self._layout.prefetches.get(step, ())]
        if below is not None and kept_below is not None and kept_below is not kept:
            arriving.append(kept_below.enter(below))
        self._fetch(arriving, layer)
        self._gradients(layer)
        if kept is not None:
            kept.leave(layer)
            if below is not None and kept_below is kept:
                # Both pass through one region.
                self._fetch([kept.enter(below)], layer)
        if self._reuse.between_layers or kept_below is not None:
            self.plan.synchronize()
        self._end(step)

    def _fetch(self, buffers: list[int], layer: Layer) -> None:
        """Let buffers come back once the compute stream has come to this point."""
        if buffers:
            self.plan.wait(self.plan.record(Stream.COMPUTE), Stream.MEMORY)
        for buffer in buffers:
            self.plan.prefetch(buffer, layer.index, on_demand=False)

    def _gradients(self, layer: Layer) -> None:
        phases = self._layout.phases(layer)
        for phase in phases:
            for index in self._layout.laid_over.get((layer.index, phase), ()):
                self.plan.alias(self._buffers.gradients[index], self._buffers.maps[index])
            waits_for_weights = self._reuse.within_layers and len(phases) > 1 and phase is phases[1]
            barrier_s = BARRIER_FRACTION * sum(self._kernels[layer.index, each].seconds for each in phases)
            self._kernel(layer, phase, barrier_s=barrier_s if waits_for_weights else 0.0)

    def _kernel(self, layer: Layer, phase: Phase, *, barrier_s: float = 0.0) -> None:
        operands = list(self._buffers.operands(layer, phase))
        kept = self._kept_of(layer)
        if kept is not None and phase is not Phase.UPDATE:
            if phase.is_backward and isinstance(layer.operator, Activation):
                # The record stands for the map.
                operands = [each for each in operands if each.role is not Role.OUTPUT]
            access = Access.READ if phase.is_backward else Access.WRITE
            operands.append(Operand(Role.STATISTICS, kept[layer], access, position=1))
        operands += workspace_operand(self._workspace.of(layer, phase))
        algorithm = self._kernels[layer.index, phase].algorithm
        self.plan.compute(layer.index, phase, algorithm, operands, barrier_s=barrier_s)

    def _kept_of(self, layer: Layer) -> KeptInPlace | None:
        return next((kept for kept in self._kept if layer in kept), None)

    def _end(self, step: int) -> None:
        """Give back what a step was the last to use; a gradient before the map over which it lies."""
        for index in self._layout.gradients_over_maps_ending.get(step, ()):
            self.plan.release(self._buffers.gradients[index])
        for buffer in self._ends[step]:
            self.plan.release(buffer)
