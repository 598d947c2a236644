"""Where everything lies under Layrub, and what a layer in place keeps for its backward beside maps.

A rectifier keeps a record, one byte for each element of Y, which tells its backward where Y is above zero without Y
(4.2). A batch normalization keeps temporary maps (`vdnnsim.policies.caffe`), which layers share once maps leave
the GPU: the authors' code moves them like maps (github.com/CGCL-codes/Layrub at 0657919,
src/caffe/layers/batch_norm_layer.cpp and scale_layer.cpp, TransferDataToCPU).

All that is kept of one sort passes through one region: it leaves for host memory behind the kernel that made it, before
the next layer runs, and comes back a layer before its backward, which is never the first: that is the loss's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.schedule import Run, backward_layers
from vdnnsim.plans.schemes import ByLifetime, Draft
from vdnnsim.plans.training_plan import Buffer, BufferKind
from vdnnsim.policies.caffe import TEMPORARY_MAPS, hold_what_layers_keep
from vdnnsim.policies.iterations.layrub_layout import Reuse, Stay, share_regions


@dataclass(frozen=True, slots=True)
class KeptInPlace:
    """What the layers of one sort keep, all in one region.

    Attributes:
        region: what the region is called, and what it holds.
        of_layers: buffers by index of the layer, in their order in forward.
    """

    region: tuple[str, BufferKind]
    of_layers: dict[int, int] = field(default_factory=dict)

    def add(self, buffers: IterationBuffers, layer: Layer, name: str, nbytes: int) -> None:
        """Let a layer keep so many bytes."""
        kept = Buffer(f"{name} of {layer.name}", BufferKind.STATISTICS, nbytes, layer.stage)
        self.of_layers[layer.index] = buffers.add(kept)


def records(buffers: IterationBuffers, workload: Workload) -> KeptInPlace:
    """Return the records of the rectifiers of a network in training."""
    kept = KeptInPlace(("region of records", BufferKind.FEATURE_MAP))
    for layer in reversed(backward_layers(workload)):
        if isinstance(layer.operator, Activation):
            kept.add(buffers, layer, "record", layer.out_shape.elements * workload.batch_size)
    return kept


def temporary_maps(buffers: IterationBuffers, workload: Workload) -> KeptInPlace:
    """Return the temporary maps of the batch normalizations of a network in training."""
    kept = KeptInPlace(("temporary maps", BufferKind.STATISTICS))
    for layer in reversed(backward_layers(workload)):
        if layer.kind is LayerKind.BN:
            kept.add(buffers, layer, "temporary maps", TEMPORARY_MAPS * workload.map_bytes(layer.output))
    return kept


class Buffers(IterationBuffers):
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

    def operands(self, run: Run) -> tuple[Operand, ...]:
        """Add what is kept; the record of a rectifier stands for its map."""
        operands, layer, phase = super().operands(run), run.layer, run.phase
        kept = self.kept_of(layer)
        if kept is None or phase is Phase.UPDATE:
            return operands
        if phase.is_backward and isinstance(layer.operator, Activation):
            operands = tuple(each for each in operands if each.role is not Role.OUTPUT)
        access = Access.READ if phase.is_backward else Access.WRITE
        return (*operands, Operand(Role.STATISTICS, kept.of_layers[layer.index], access, position=1))


class Spaces(ByLifetime):
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
