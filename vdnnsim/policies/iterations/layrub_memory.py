"""Memory under Layrub: the stays of maps and gradients on the GPU, gradients laid over maps, and shared regions.

A step is forward of a layer, by its index, or backward of a layer that has one, numbered after forward.

Buffers share fixed regions: Layrub (3.3) selects "two pairs or more of the largest memory spaces" before training.
By its source each buffer takes the first free region, which grows to hold it, else a new one
(github.com/CGCL-codes/Layrub at 0657919, src/caffe/net.cpp, getMemoryBlock).

Layers in place keep data for their backward: a rectifier a record of one byte for each element of Y (4.2); a batch
normalization temporary maps (`vdnnsim.policies.caffe`), which are copied like maps
(src/caffe/layers/batch_norm_layer.cpp and scale_layer.cpp, TransferDataToCPU). Data of one sort share one region: they
are offloaded after the kernel that writes them, before the next layer runs, and prefetched a layer before their
backward.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count

from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.liveness import last_forward_use, maps_touched, needed_in_backward
from vdnnsim.plans.schedule import Run, backward_layers
from vdnnsim.plans.schemes import ByLifetime, Draft
from vdnnsim.plans.training_plan import Buffer, BufferKind
from vdnnsim.policies.caffe import TEMPORARY_MAPS, hold_what_layers_keep

_IN_PLACE = (LayerKind.BN, LayerKind.POOL)
"""Kinds whose kernel may write dX over the X that it reads; LRN may not (5.2.3)."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """The kinds of memory reuse.

    Attributes:
        within_layers: gradients lie over dead maps, as rectifiers read records instead of maps; weight gradients are
            computed before data gradients.
        between_layers: maps are offloaded by their last reader in forward, and prefetched a step before backward.
    """

    within_layers: bool
    between_layers: bool


@dataclass(frozen=True, slots=True)
class Stay:
    """A buffer on the GPU from one step to another, both included; None for unused space."""

    buffer: int | None
    nbytes: int
    first: int
    last: int


def share_regions(stays: Iterable[Stay]) -> tuple[list[int], list[int]]:
    """Return the bytes of each region, and the region of each stay, in the order given within a step."""
    sizes: list[int] = []
    busy_until: list[int] = []
    region_of: dict[int, int] = {}
    for number, stay in sorted(enumerate(stays), key=lambda each: each[1].first):
        region = next((i for i, until in enumerate(busy_until) if until < stay.first), len(sizes))
        if region == len(sizes):
            sizes.append(0)
            busy_until.append(-1)
        sizes[region] = max(sizes[region], stay.nbytes)
        busy_until[region] = stay.last
        region_of[number] = region
    return sizes, [region_of[number] for number in range(len(region_of))]


@dataclass(frozen=True, slots=True)
class Stays:
    """The stays of maps and gradients.

    Attributes:
        gradient_stays: likewise, of gradients that do not lie over their map.
        split_stays: of the further diffs that Caffe has for a map of several readers, until they are summed; kernels of
            a plan accumulate into one gradient instead.
        offloads: by layer, the maps offloaded with its forward.
        prefetches: by step, the maps prefetched beside it.
        over_maps: by the kernel that writes them first, the gradients that lie over their map.
        gradients_over_maps_ending: by step, those of them that end with it.
    """

    reuse: Reuse
    map_stays: list[tuple[int, Stay]] = field(default_factory=list)
    gradient_stays: list[tuple[int, Stay]] = field(default_factory=list)
    split_stays: list[Stay] = field(default_factory=list)
    offloads: dict[int, list[int]] = field(default_factory=dict)
    prefetches: dict[int, list[int]] = field(default_factory=dict)
    over_maps: dict[tuple[int, Phase], list[int]] = field(default_factory=dict)
    gradients_over_maps_ending: dict[int, list[int]] = field(default_factory=dict)

    def phases(self, layer: Layer) -> tuple[Phase, ...]:
        return tuple(reversed(layer.backward_phases)) if self.reuse.within_layers else layer.backward_phases


def stays_of(workload: Workload, reuse: Reuse) -> Stays:
    builder = _Builder(workload, reuse)
    for each in workload.graph.maps:
        builder.add(each)
    return builder.stays


class _Builder:
    def __init__(self, workload: Workload, reuse: Reuse) -> None:
        self.stays = Stays(reuse)
        self._workload, self._reuse = workload, reuse
        self._layers = workload.graph.layers
        self._step_of = {
            layer.index: step for step, layer in enumerate(backward_layers(workload), start=len(self._layers))
        }
        # By layer, the last step of backward of itself and of later layers.
        behind = accumulate((self._step_of.get(layer.index, 0) for layer in reversed(self._layers)), max)
        self._end_of = list(reversed(list(behind)))

    def add(self, each: FeatureMap) -> None:
        first, last_forward = each.producer or 0, last_forward_use(each)
        readers = self._readers(each)
        last = self._step_of[min(readers)] if readers else last_forward
        # What the first backward reads is not offloaded: it would be prefetched at once.
        if self._reuse.between_layers and readers and self._step_of[max(readers)] > len(self._layers):
            fetch = self._step_of[max(readers)] - 1
            self._stay(self.stays.map_stays, each, first, last_forward)
            self.stays.offloads.setdefault(last_forward, []).append(each.index)
            self.stays.prefetches.setdefault(fetch, []).append(each.index)
            first = fetch
        if each.needs_gradient and self._workload.mode is Mode.TRAINING:
            last = self._add_gradient(each, readers, last)
        self._stay(self.stays.map_stays, each, first, last)

    def _add_gradient(self, each: FeatureMap, readers: list[int], last: int) -> int:
        """Add the stay of a gradient; return the end of its map's, extended where the gradient lies over it."""
        writer, phase = self._first_writer(each)
        assert each.producer is not None, "the input batch has no gradient"
        writers = [self._step_of[index] for index in reversed(each.consumers)]
        nbytes = self._workload.map_bytes(each.index)
        self.stays.split_stays.extend(Stay(None, nbytes, step, writers[-1]) for step in writers[1:])
        end = self._end_of[each.producer]
        if self._lies_over(each, readers, writer, phase):
            self.stays.over_maps.setdefault((writer.index, phase), []).append(each.index)
            self.stays.gradients_over_maps_ending.setdefault(end, []).append(each.index)
            return end
        self._stay(self.stays.gradient_stays, each, self._step_of[writer.index], end)
        return last

    def _readers(self, each: FeatureMap) -> list[int]:
        """Return the layers in whose backward a map is on the GPU; a rectifier reads its record instead.

        An offloaded map is prefetched at least for its last reader in forward.
        """
        records = self._reuse.within_layers
        saved_for = each.saved_for if needed_in_backward(self._workload, each) else ()
        readers = [i for i in saved_for if not (records and isinstance(self._layers[i].operator, Activation))]
        comes_back = self._reuse.between_layers and each.consumers and each.consumers[-1] in self._step_of
        return readers or ([each.consumers[-1]] if comes_back else [])

    def _first_writer(self, each: FeatureMap) -> tuple[Layer, Phase]:
        layer = self._layers[each.consumers[-1]]
        phases = self.stays.phases(layer)
        return layer, next(x for x in phases if each.index in maps_touched(self._workload, layer, x).gradients_written)

    def _lies_over(self, each: FeatureMap, readers: list[int], writer: Layer, phase: Phase) -> bool:
        """Whether the map is on the GPU and dead when the first kernel writes its gradient."""
        if not self._reuse.within_layers or (self._reuse.between_layers and not readers):
            return False
        phases = self.stays.phases(writer)
        to_come = phases[phases.index(phase) + (writer.kind in _IN_PLACE) :]
        return all(index >= writer.index for index in readers) and not any(
            each.index in maps_touched(self._workload, writer, each_phase).maps_read for each_phase in to_come
        )

    def _stay(self, stays: list[tuple[int, Stay]], each: FeatureMap, first: int, last: int) -> None:
        stays.append((each.index, Stay(None, self._workload.map_bytes(each.index), first, last)))


@dataclass(frozen=True, slots=True)
class KeptInPlace:
    """Data of layers of one sort, all in one region.

    Attributes:
        region: its name and kind.
        of_layers: buffers by index of the layer, in forward order.
    """

    region: tuple[str, BufferKind]
    of_layers: dict[int, int]


class Buffers(IterationBuffers):
    """Buffers of an iteration with the data of layers in place, written in forward and read in backward."""

    def __init__(self, workload: Workload, reuse: Reuse) -> None:
        super().__init__(workload)
        self.kept: list[KeptInPlace] = []
        layers = backward_layers(workload)[::-1]
        if reuse.within_layers:
            rectifiers = [layer for layer in layers if isinstance(layer.operator, Activation)]
            sizes = [layer.out_shape.elements * workload.batch_size for layer in rectifiers]
            self._keep("record", ("region of records", BufferKind.FEATURE_MAP), rectifiers, sizes)
        if reuse.between_layers:
            normalized = [layer for layer in layers if layer.kind is LayerKind.BN]
            sizes = [TEMPORARY_MAPS * workload.map_bytes(layer.output) for layer in normalized]
            self._keep("temporary maps", ("temporary maps", BufferKind.STATISTICS), normalized, sizes)

    def _keep(self, name: str, region: tuple[str, BufferKind], layers: Iterable[Layer], sizes: Iterable[int]) -> None:
        kept = (
            (layer.index, Buffer(f"{name} of {layer.name}", BufferKind.STATISTICS, nbytes, layer.stage))
            for layer, nbytes in zip(layers, sizes, strict=True)
        )
        self.kept.append(KeptInPlace(region, {index: self.add(buffer) for index, buffer in kept}))

    def kept_of(self, layer: Layer | None) -> KeptInPlace | None:
        return next((kept for kept in self.kept if layer and layer.index in kept.of_layers), None)

    def operands(self, run: Run) -> tuple[Operand, ...]:
        """Add the data kept; a rectifier reads its record instead of its map."""
        operands, layer, phase = super().operands(run), run.layer, run.phase
        kept = self.kept_of(layer)
        if kept is None or phase is Phase.UPDATE:
            return operands
        if phase.is_backward and isinstance(layer.operator, Activation):
            operands = tuple(each for each in operands if each.role is not Role.OUTPUT)
        access = Access.READ if phase.is_backward else Access.WRITE
        return (*operands, Operand(Role.STATISTICS, kept.of_layers[layer.index], access, position=1))


class Spaces(ByLifetime):
    """Regions are held throughout, with the internals of Caffe's layers, and maps that are not offloaded."""

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
        self._numbers = count(1)
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
        sizes, region_of = share_regions(stays)
        first = self._draft.workload.graph.layers[0]
        regions = [
            self._hold_space(f"region {next(self._numbers)}", BufferKind.FEATURE_MAP, nbytes, first) for nbytes in sizes
        ]
        for stay, region in sorted(zip(stays, region_of, strict=True), key=lambda each: each[0].first):
            if stay.buffer is not None:
                self.lies_in.setdefault(stay.buffer, []).append(regions[region])

    def _hold_kept(self, kept: KeptInPlace) -> None:
        if kept.of_layers:
            nbytes = max(self._buffers.nbytes(buffer) for buffer in kept.of_layers.values())
            region = self._hold_space(*kept.region, nbytes, self._draft.workload.graph.layers[min(kept.of_layers)])
            self.lies_in |= {buffer: [region] for buffer in kept.of_layers.values()}

    def _hold_copy_of_gradient(self) -> None:
        """Hold a shared copy of dY for batch normalizations, where dX is laid over the map."""
        workload = self._draft.workload
        normalized = [layer for layer in backward_layers(workload) if layer.kind is LayerKind.BN]
        if normalized:
            nbytes = max(workload.map_bytes(layer.output) for layer in normalized)
            copy = self._plan.buffer("copy of dY", BufferKind.STATISTICS, nbytes, normalized[0].stage)
            self.held.append((copy, 0, Phase.FORWARD))
