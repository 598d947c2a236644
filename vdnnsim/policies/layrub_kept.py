"""What a layer in place keeps for its backward beside maps, and where, under Layrub.

A rectifier keeps a record, one byte for each element of Y, which tells its backward where Y is above zero without Y
(4.2). A batch normalization keeps temporary maps (`vdnnsim.policies.caffe_layers`), which layers share once maps leave
the GPU: the authors' code moves them like maps (github.com/CGCL-codes/Layrub at 0657919,
src/caffe/layers/batch_norm_layer.cpp and scale_layer.cpp, TransferDataToCPU).

All that is kept of one sort passes through one region: it leaves for host memory behind the kernel that made it, before
the next layer runs, and comes back a layer before its backward, which is never the first: that is the loss's.
"""

from collections.abc import Iterable

from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.training_plan import BufferKind
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.caffe_layers import TEMPORARY_MAPS


class KeptInPlace:
    """What the layers of one sort keep, all in one region; the layers come in their order in forward."""

    def __init__(self, writer: PlanWriter, region_name: str, region_kind: BufferKind) -> None:
        self._writer = writer
        self._region_name, self._region_kind = region_name, region_kind
        self._region: int | None = None
        self._layers: list[Layer] = []
        self._buffers: dict[int, int] = {}

    def add(self, layer: Layer, name: str, nbytes: int) -> None:
        """Let a layer keep so many bytes."""
        self._buffers[layer.index] = self._writer.buffer(name, BufferKind.STATISTICS, nbytes, layer.stage)
        self._layers.append(layer)

    def __contains__(self, layer: Layer) -> bool:
        return layer.index in self._buffers

    def __getitem__(self, layer: Layer) -> int:
        """The buffer of what a layer keeps."""
        return self._buffers[layer.index]

    def allocate(self) -> None:
        """Allocate the region, if any layer keeps anything."""
        if self._layers:
            nbytes = max(self._writer.nbytes(buffer) for buffer in self._buffers.values())
            self._region = self._writer.buffer(self._region_name, self._region_kind, nbytes, self._layers[0].stage)
            self._writer.allocate(self._region, self._layers[0].index, Phase.FORWARD)

    def release(self) -> None:
        """Release the region."""
        if self._region is not None:
            self._writer.release(self._region)

    def enter(self, layer: Layer) -> int:
        """Lay what a layer keeps into the region, which nobody else uses now, and return its buffer."""
        assert self._region is not None, "a layer keeps something"
        self._writer.alias(self._buffers[layer.index], self._region)
        return self._buffers[layer.index]

    def leave(self, layer: Layer) -> None:
        """Make room in the region."""
        self._writer.release(self._buffers[layer.index])


def records(writer: PlanWriter, workload: Workload) -> KeptInPlace:
    """Return the records of the rectifiers of a network in training."""
    kept = KeptInPlace(writer, "region of records", BufferKind.FEATURE_MAP)
    for layer in _with_backward(workload):
        if isinstance(layer.operator, Activation):
            elements = layer.out_shape.elements * workload.batch_size
            kept.add(layer, f"record of {layer.name}", elements)
    return kept


def temporary_maps(writer: PlanWriter, workload: Workload) -> KeptInPlace:
    """Return the temporary maps of the batch normalizations of a network in training."""
    kept = KeptInPlace(writer, "temporary maps", BufferKind.STATISTICS)
    for layer in _with_backward(workload):
        if layer.kind is LayerKind.BN:
            nbytes = TEMPORARY_MAPS * workload.map_bytes(layer.output)
            kept.add(layer, f"temporary maps of {layer.name}", nbytes)
    return kept


def _with_backward(workload: Workload) -> Iterable[Layer]:
    layers = workload.graph.layers if workload.mode is Mode.TRAINING else ()
    return (layer for layer in layers if layer.backward_phases)
