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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from vdnnsim.cost.table import KernelChoice
from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.buffers import IterationBuffers
from vdnnsim.plan.lowering import lower
from vdnnsim.plan.regions import Stay, share_regions
from vdnnsim.plan.schedule import (
    Allocate,
    Fetch,
    Offload,
    Release,
    Run,
    Schedule,
    Step,
    Synchronize,
    backward_layers,
    feature_maps,
    forward,
    update,
)
from vdnnsim.plan.schemes import ByLifetime, Draft
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.algorithms import kernels_within
from vdnnsim.policies.caffe_layers import WORKSPACE_LIMIT_BYTES, cudnn_handles, hold_what_layers_keep
from vdnnsim.policies.layrub_kept import KeptInPlace, records, temporary_maps
from vdnnsim.policies.layrub_layout import Layout, lay_out
from vdnnsim.policies.port import Setting

BARRIER_FRACTION: Final = 0.0305
"""Of the time of the weight and the data gradient of a layer with weights, what a barrier between them costs (4.3)."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Which memory is reused."""

    within_layers: bool
    between_layers: bool


def layrub_plan(setting: Setting, reuse: Reuse, *, label: str) -> TrainingPlan:
    """Return the plan of an iteration under Layrub."""
    workload = setting.workload
    kernels = kernels_within(workload, setting.costs, WORKSPACE_LIMIT_BYTES)
    handles = cudnn_handles(workload)
    layout = lay_out(
        workload,
        gradient_over_map=reuse.within_layers,
        offload=reuse.between_layers,
        weights_first=reuse.within_layers,
    )
    buffers = _Buffers(workload, reuse)
    pools = _pools(workload, buffers, layout, reuse)
    over = {buffers.gradients[index]: [buffers.maps[index]] for each in layout.laid_over.values() for index in each}
    scheme = partial(_Spaces, reuse=reuse, pools=pools, kept=buffers.kept, over=over)
    schedule = _Walk(workload, kernels, reuse, layout, buffers, pools).steps()
    return lower(
        schedule, workload, kernels, scheme, label=label, algorithms="limited", handles=handles, buffers=buffers
    )


class _Buffers(IterationBuffers):
    """Those of an iteration with what layers in place keep, which their kernels write, or read in backward."""

    def __init__(self, workload: Workload, reuse: Reuse) -> None:
        super().__init__(workload)
        self.kept = [
            *([records(self, workload)] if reuse.within_layers else []),
            *([temporary_maps(self, workload)] if reuse.between_layers else []),
        ]

    def kept_of(self, layer: Layer | None) -> KeptInPlace | None:
        """Return what a layer keeps with others of its sort."""
        return next((kept for kept in self.kept if layer and layer.index in kept.of_layers), None)

    def operands(self, layer: Layer, phase: Phase, part: int = 0) -> tuple[Operand, ...]:
        """Add what is kept; the record of a rectifier stands for its map."""
        operands = super().operands(layer, phase, part)
        kept = self.kept_of(layer)
        if kept is None or phase is Phase.UPDATE:
            return operands
        if phase.is_backward and isinstance(layer.operator, Activation):
            operands = tuple(each for each in operands if each.role is not Role.OUTPUT)
        access = Access.READ if phase.is_backward else Access.WRITE
        return (*operands, Operand(Role.STATISTICS, kept.of_layers[layer.index], access, position=1))


class _Spaces(ByLifetime):
    """Regions are held throughout, beside what Caffe's layers keep, and maps where these do not leave."""

    def __init__(
        self,
        draft: Draft,
        *,
        reuse: Reuse,
        pools: Sequence[Sequence[Stay]],
        kept: Iterable[KeptInPlace],
        over: Mapping[int, list[int]],
    ) -> None:
        super().__init__(draft, holds_statistics=True)
        hold_what_layers_keep(self, draft, temporary_maps=not reuse.between_layers)
        self._regions = 0
        self.lies_in |= over
        for stays in pools:
            self._share(stays)
        for each in kept:
            self._hold_kept(each)
        if reuse.within_layers and reuse.between_layers:
            self._hold_copy_of_gradient()
        self._share_workspace()
        if not reuse.between_layers:
            self._hold_maps()

    def _hold_space(self, name: str, kind: BufferKind, nbytes: int, layer: Layer) -> int:
        space = self._plan.buffer(name, kind, nbytes, layer.stage)
        self.held.append((space, layer.index, Phase.FORWARD))
        return space

    def _share(self, stays: Sequence[Stay]) -> None:
        shared = share_regions(stays)
        first = self._draft.workload.graph.layers[0]
        numbers = range(self._regions + 1, self._regions + 1 + len(shared.sizes))
        self._regions += len(shared.sizes)
        regions = [
            self._hold_space(f"region {number}", BufferKind.FEATURE_MAP, nbytes, first)
            for number, nbytes in zip(numbers, shared.sizes, strict=True)
        ]
        for stay, region in sorted(zip(stays, shared.region_of, strict=True), key=lambda each: each[0].first):
            if stay.buffer is not None:
                self.lies_in.setdefault(stay.buffer, []).append(regions[region])

    def _hold_kept(self, kept: KeptInPlace) -> None:
        if kept.of_layers:
            nbytes = max(self._buffers.nbytes(buffer) for buffer in kept.of_layers.values())
            region = self._hold_space(*kept.region, nbytes, self._draft.workload.graph.layers[min(kept.of_layers)])
            self.lies_in |= {buffer: [region] for buffer in kept.of_layers.values()}

    def _hold_copy_of_gradient(self) -> None:
        """Hold the diff of the normalized map, in which dY is kept where dX comes to lie over it; all share one."""
        workload = self._draft.workload
        normalized = [layer for layer in backward_layers(workload) if layer.kind is LayerKind.BN]
        if normalized:
            nbytes = max(workload.map_bytes(layer.output) for layer in normalized)
            copy = self._plan.buffer("copy of dY", BufferKind.STATISTICS, nbytes, normalized[0].stage)
            self.held.append((copy, 0, Phase.FORWARD))


def _pools(workload: Workload, buffers: IterationBuffers, layout: Layout, reuse: Reuse) -> list[list[Stay]]:
    """Return the stays that share regions: maps of several readers, their gradients, and all others."""
    forked = {each.index for each in workload.graph.maps if len(each.consumers) > 1}
    map_stays = layout.map_stays if reuse.between_layers else []
    maps = [(index in forked, stay.of_buffer(buffers.maps[index])) for index, stay in map_stays]
    gradients = [(index in forked, stay.of_buffer(buffers.gradients[index])) for index, stay in layout.gradient_stays]
    return [
        [stay for is_forked, stay in maps if is_forked],
        [stay for is_forked, stay in gradients if is_forked] + layout.split_stays,
        [stay for is_forked, stay in maps + gradients if not is_forked],
    ]


class _Walk:
    """Writes the steps of an iteration."""

    def __init__(
        self,
        workload: Workload,
        kernels: KernelChoice,
        reuse: Reuse,
        layout: Layout,
        buffers: _Buffers,
        pools: Sequence[Sequence[Stay]],
    ) -> None:
        self._workload = workload
        self._kernels = kernels
        self._reuse = reuse
        self._layout = layout
        self._buffers = buffers
        self._backward = backward_layers(workload)
        self._below = {above.index: below for above, below in pairwise(self._backward)}
        self._steps: list[Step] = []
        # By step of the layout, what is laid before it, and what is given back after it, a gradient over a map first.
        number = len(workload.graph.layers) + len(self._backward)
        over = layout.gradients_over_maps_ending
        self._begins: list[list[int]] = [[] for _ in range(number)]
        self._ends = [self._gradients(over.get(step, ())) for step in range(number)]
        for stay in (stay for stays in pools for stay in stays):
            if stay.buffer is not None:
                self._begins[stay.first].append(stay.buffer)
                self._ends[stay.last].append(stay.buffer)

    def steps(self) -> Schedule:
        """Return the whole iteration."""
        for run in forward(self._workload):
            self._forward(run)
        for step, layer in enumerate(self._backward, start=len(self._workload.graph.layers)):
            self._backward_of(layer, step)
        return [*self._steps, *update(self._workload)]

    def _forward(self, run: Run) -> None:
        layer, kept = run.layer, self._kept_of(run.layer)
        self._enter((*self._begins[layer.index], *kept), layer, Phase.FORWARD)
        leaving = feature_maps(self._workload, *self._layout.offloads.get(layer.index, ())) + kept
        self._steps.append(run)
        if leaving:
            self._steps += [Offload(leaving, layer, beside=not kept), Synchronize()]
        self._leave((*kept, *self._ends[layer.index]))

    def _backward_of(self, layer: Layer, step: int) -> None:
        phases = self._layout.phases(layer)
        below = self._below.get(layer.index)
        kept, kept_below = self._kept_of(layer), self._kept_of(below)
        shares_region = bool(kept_below) and self._buffers.kept_of(layer) is self._buffers.kept_of(below)
        self._enter(self._begins[step], layer, phases[0])
        arriving = feature_maps(self._workload, *self._layout.prefetches.get(step, ()))
        if not shares_region:
            self._enter(kept_below, layer, phases[0])
            arriving += kept_below
        self._fetch(arriving, layer, phases[0])
        seconds = sum(self._kernels[layer.index, phase].seconds for phase in phases)
        for phase in phases:
            self._enter(self._gradients(self._layout.laid_over.get((layer.index, phase), ())), layer, phase)
            waits_for_weights = self._reuse.within_layers and phase in phases[1:]
            self._steps.append(Run(layer, phase, barrier_s=BARRIER_FRACTION * seconds if waits_for_weights else 0.0))
        self._leave(kept)
        if shares_region:
            self._enter(kept_below, layer, phases[0])
            self._fetch(kept_below, layer, phases[0])
        if self._reuse.between_layers or kept_below:
            self._steps.append(Synchronize())
        self._leave(self._ends[step])

    def _gradients(self, indices: Iterable[int]) -> list[int]:
        return [self._buffers.gradients[index] for index in indices]

    def _kept_of(self, layer: Layer | None) -> tuple[int, ...]:
        kept = self._buffers.kept_of(layer)
        return () if layer is None or kept is None else (kept.of_layers[layer.index],)

    def _enter(self, what: Sequence[int], layer: Layer, phase: Phase) -> None:
        if what:
            self._steps.append(Allocate(tuple(what), layer, phase))

    def _leave(self, what: Sequence[int]) -> None:
        if what:
            self._steps.append(Release(tuple(what)))

    def _fetch(self, what: tuple[int, ...], layer: Layer, phase: Phase) -> None:
        if what:
            self._steps.append(Fetch(what, layer, phase, on_demand=False))
