"""What a layer in place keeps for its backward beside maps, and where, under Layrub.

A rectifier keeps a record, one byte for each element of Y, which tells its backward where Y is above zero without Y
(4.2). A batch normalization keeps temporary maps (`vdnnsim.policies.caffe_layers`), which layers share once maps leave
the GPU: the authors' code moves them like maps (github.com/CGCL-codes/Layrub at 0657919,
src/caffe/layers/batch_norm_layer.cpp and scale_layer.cpp, TransferDataToCPU).

All that is kept of one sort passes through one region: it leaves for host memory behind the kernel that made it, before
the next layer runs, and comes back a layer before its backward, which is never the first: that is the loss's.
"""

from dataclasses import dataclass, field

from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import Layer, LayerKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.buffers import IterationBuffers
from vdnnsim.plan.schedule import backward_layers
from vdnnsim.plan.training_plan import Buffer, BufferKind
from vdnnsim.policies.caffe_layers import TEMPORARY_MAPS


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
