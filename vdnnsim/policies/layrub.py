"""`layrub_intra`, `layrub_inter`, `layrub_hybrid`: Layrub (Jin et al., TACO 2018), which is built on Caffe.

*Within layers* (3.2, 4.2, 4.3): weight gradients are computed before data gradients, and dX is laid over the dead X. A
rectifier keeps one byte for each element, which is offloaded and prefetched. A barrier between the two gradients costs
3.05 % of their time, in which Caffe's streams overlap.

*Between layers* (3.3, 4.1): all maps and gradients share a few fixed regions; maps of several readers have regions of
their own, and so have their gradients. Every map is offloaded with forward of its last reader (reference count zero),
beside its kernel; the data of a layer in place after its kernel (`vdnnsim.policies.iterations.layrub_memory`), and so
is the normalized map of a batch normalization. While backward of a layer runs, all that the layer below it offloaded is
prefetched, whether its backward reads it or not. Streams are synchronized at the end of each layer that copied, and of
each layer in backward.

Where dX cannot lie over X, which other layers or the kernel itself still read, it lies in a fixed region; kernels of
batch normalization and pooling may write over their input. The diffs of a Split (`vdnnsim.policies.caffe`) lie in
regions, and all batch normalizations share temporary maps. This follows the authors' code
(github.com/CGCL-codes/Layrub at 0657919, src/caffe/net.cpp: ForwardFromTo, BackwardFromTo, interlayer, intralayer).
Differences of that code: a diff that lies over no data is allocated by the driver in every backward, which may delay a
copy; streams are synchronized at the end of each layer; the last three layers copy nothing; and a batch normalization
is two layers, of which the second hides the prefetches of the first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import ClassVar, Final

from vdnnsim.cost.table import KernelChoice
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.schedule import (
    Allocate,
    Offload,
    Prefetch,
    Release,
    Run,
    Schedule,
    ScheduleStep,
    Synchronize,
    backward_layers,
    feature_maps,
    forward,
    update,
)
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import kernels_within
from vdnnsim.policies.caffe import WORKSPACE_LIMIT_BYTES, cudnn_handles
from vdnnsim.policies.interface import DecidedBy, Policy, Setting
from vdnnsim.policies.iterations.layrub_memory import Buffers, Reuse, Spaces, Stay, Stays, stays_of

BARRIER_FRACTION: Final = 0.0305
"""Cost of a barrier between weight and data gradient, of their time (4.3)."""


class _Layrub(Policy, frozen=True, kw_only=True):
    only_built: ClassVar[str] = "lays gradients and maps into the memory of Caffe's layers"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS
    reuse: ClassVar[Reuse]

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels within Caffe's limit of workspace."""
        workload, reuse = setting.workload, self.reuse
        kernels = kernels_within(workload, setting.costs, WORKSPACE_LIMIT_BYTES)
        stays = stays_of(workload, reuse)
        buffers = Buffers(workload, reuse)
        pools = _pools(workload, buffers, stays)
        over = {buffers.gradients[index]: [buffers.maps[index]] for each in stays.over_maps.values() for index in each}
        return lower(
            _Walk(workload, kernels, stays, buffers, pools).steps(),
            workload,
            kernels,
            partial(Spaces, reuse=reuse, pools=pools, kept=buffers.kept, over=over),
            label=self.label,
            algorithms="limited",
            handles=cudnn_handles(workload),
            buffers=buffers,
        )


class LayrubIntra(_Layrub, frozen=True, kw_only=True):
    """Lay dX over X; all maps stay on the GPU, and only the records of rectifiers are offloaded."""

    name: ClassVar[str] = "layrub_intra"
    summary: ClassVar[str] = "lays gradients over activations (Layrub paper, 3.2)"
    reuse: ClassVar[Reuse] = Reuse(within_layers=True, between_layers=False)


class LayrubInter(_Layrub, frozen=True, kw_only=True):
    """Let all layers share fixed regions, with a space for each gradient; offload maps at reference count zero."""

    name: ClassVar[str] = "layrub_inter"
    summary: ClassVar[str] = "offloads at reference count zero, all layers share a few regions (Layrub paper, 3.3)"
    reuse: ClassVar[Reuse] = Reuse(within_layers=False, between_layers=True)


class LayrubHybrid(_Layrub, frozen=True, kw_only=True):
    """Lay dX over X, in fixed regions (3.4): the paper's Layrub."""

    name: ClassVar[str] = "layrub_hybrid"
    summary: ClassVar[str] = "reuses memory within and between layers (Layrub paper, 3.4)"
    reuse: ClassVar[Reuse] = Reuse(within_layers=True, between_layers=True)


def _pools(workload: Workload, buffers: IterationBuffers, stays: Stays) -> list[list[Stay]]:
    """Return the stays that share regions: maps of several readers, their gradients, and all others."""
    forked = {each.index for each in workload.graph.maps if len(each.consumers) > 1}
    map_stays = stays.map_stays if stays.reuse.between_layers else []
    maps = [(index in forked, replace(stay, buffer=buffers.maps[index])) for index, stay in map_stays]
    gradients = [
        (index in forked, replace(stay, buffer=buffers.gradients[index])) for index, stay in stays.gradient_stays
    ]
    return [
        [stay for is_forked, stay in maps if is_forked],
        [stay for is_forked, stay in gradients if is_forked] + stays.split_stays,
        [stay for is_forked, stay in maps + gradients if not is_forked],
    ]


@dataclass(eq=False)
class _Walk:
    workload: Workload
    kernels: KernelChoice
    stays: Stays
    buffers: Buffers
    pools: Sequence[Sequence[Stay]]

    def __post_init__(self) -> None:
        stays = self.stays
        self._backward = backward_layers(self.workload)
        self._below = {above.index: below for above, below in pairwise(self._backward)}
        self._steps: list[ScheduleStep] = []
        # By step of the stays, buffers allocated before it, and released after it, gradients over maps first.
        number = len(self.workload.graph.layers) + len(self._backward)
        over = stays.gradients_over_maps_ending
        self._begins: list[list[int]] = [[] for _ in range(number)]
        self._ends = [self._gradients(over.get(step, ())) for step in range(number)]
        for stay in (stay for stays in self.pools for stay in stays):
            if stay.buffer is not None:
                self._begins[stay.first].append(stay.buffer)
                self._ends[stay.last].append(stay.buffer)

    def steps(self) -> Schedule:
        for run in forward(self.workload):
            self._forward(run)
        for step, layer in enumerate(self._backward, start=len(self.workload.graph.layers)):
            self._backward_of(layer, step)
        return [*self._steps, *update(self.workload)]

    def _forward(self, run: Run) -> None:
        layer, kept = run.layer, self._kept_of(run.layer)
        self._enter((*self._begins[layer.index], *kept), layer, Phase.FORWARD)
        offloaded = feature_maps(self.workload, *self.stays.offloads.get(layer.index, ())) + kept
        self._steps.append(run)
        if offloaded:
            self._steps += [Offload(offloaded, layer, beside=not kept), Synchronize()]
        self._leave((*kept, *self._ends[layer.index]))

    def _backward_of(self, layer: Layer, step: int) -> None:
        phases = self.stays.phases(layer)
        below = self._below.get(layer.index)
        kept, kept_below = self._kept_of(layer), self._kept_of(below)
        shares_region = bool(kept_below) and self.buffers.kept_of(layer) is self.buffers.kept_of(below)
        self._enter(self._begins[step], layer, phases[0])
        arriving = feature_maps(self.workload, *self.stays.prefetches.get(step, ()))
        if not shares_region:
            self._enter(kept_below, layer, phases[0])
            arriving += kept_below
        self._fetch(arriving, layer, phases[0])
        seconds = sum(self.kernels[layer.index, phase].seconds for phase in phases)
        for phase in phases:
            self._enter(self._gradients(self.stays.over_maps.get((layer.index, phase), ())), layer, phase)
            waits_for_weights = self.stays.reuse.within_layers and phase in phases[1:]
            self._steps.append(Run(layer, phase, barrier_s=BARRIER_FRACTION * seconds if waits_for_weights else 0.0))
        self._leave(kept)
        if shares_region:
            self._enter(kept_below, layer, phases[0])
            self._fetch(kept_below, layer, phases[0])
        if self.stays.reuse.between_layers or kept_below:
            self._steps.append(Synchronize())
        self._leave(self._ends[step])

    def _gradients(self, indices: Iterable[int]) -> list[int]:
        return [self.buffers.gradients[index] for index in indices]

    def _kept_of(self, layer: Layer | None) -> tuple[int, ...]:
        kept = self.buffers.kept_of(layer)
        return () if layer is None or kept is None else (kept.of_layers[layer.index],)

    def _enter(self, what: Sequence[int], layer: Layer, phase: Phase) -> None:
        if what:
            self._steps.append(Allocate(tuple(what), layer, phase))

    def _leave(self, what: Sequence[int]) -> None:
        if what:
            self._steps.append(Release(tuple(what)))

    def _fetch(self, what: tuple[int, ...], layer: Layer, phase: Phase) -> None:
        if what:
            self._steps.append(Prefetch(what, layer, phase, on_demand=False))
