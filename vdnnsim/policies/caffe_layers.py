"""Layers as BVLC Caffe has them: kernels within a limit, handles of cuDNN, maps that are no blobs, batches ahead.

cuDNN chooses the fastest algorithm whose workspace keeps within 8 MiB (`workspace_limit_bytes`), or one that wants the
least. Each CONV layer holds a workspace of its own for each of its three streams, from the first iteration on; kernels
run one after the other here, and all share one: of the algorithms within the limit, those of the cost model want some
KiB each. Each stream has a handle, which takes device memory, too. Source: github.com/BVLC/caffe,
src/caffe/layers/cudnn_conv_layer.cpp.

Caffe's batch normalization works in place and keeps the normalized map, data and diff, which stand here as its X and
dX; beside them it keeps a temporary map, and the Scale behind it, in place as well, another (batch_norm_layer.cpp,
scale_layer.cpp).

A data layer reads four batches ahead into device memory (`prefetch` of DataParameter in src/caffe/proto/caffe.proto,
src/caffe/layers/base_data_layer.cpp), of which the one that is trained on is the input here.
"""

from typing import Final

from vdnnsim.cost.table import CostTable, KernelChoice, KernelCost
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.buffers import IterationBuffers
from vdnnsim.plan.training_plan import BufferKind
from vdnnsim.plan.writer import PlanWriter

WORKSPACE_LIMIT_BYTES: Final = 8 * 2**20
HANDLES_PER_CONVOLUTION: Final = 3
"""Of cuDNN: each CONV layer opens one for each of its streams."""

TEMPORARY_MAPS: Final = 2
"""Of a batch normalization: its own, and that of its Scale; each as large as Y."""

BATCH_AHEAD_NAMES: Final = ("batch 1 ahead", "batch 2 ahead", "batch 3 ahead")
"""The buffers of those on the GPU beside the input that is trained on."""


def kernels_within(workload: Workload, costs: CostTable, limit_bytes: int = WORKSPACE_LIMIT_BYTES) -> KernelChoice:
    """Return, for each phase of each layer, the fastest kernel within a limit of workspace; else the least greedy."""

    def choose(layer: Layer, phase: Phase) -> KernelCost:
        within = (each for each in costs.options(layer.index, phase) if each.workspace_bytes <= limit_bytes)
        return next(within, costs.memory_optimal(layer.index, phase))

    return {
        (layer.index, phase): choose(layer, phase)
        for layer in workload.graph.layers
        for phase in workload.phases(layer)
    }


def cudnn_handles(workload: Workload) -> int:
    """Return how many handles all CONV layers open."""
    return HANDLES_PER_CONVOLUTION * sum(layer.kind is LayerKind.CONV for layer in workload.graph.layers)


class ResidentBuffers:
    """What Caffe holds from iteration to iteration or throughout one: W, dW, states, statistics and batches ahead.

    With `temporary_maps`, each batch normalization keeps its own among its statistics.
    """

    def __init__(
        self, writer: PlanWriter, workload: Workload, buffers: IterationBuffers, *, temporary_maps: bool = True
    ) -> None:
        self._writer = writer
        self._buffers = buffers
        # By buffer of statistics, the one that holds it and the temporary maps.
        self._holders: dict[int, int] = {}
        stage = workload.graph.maps[0].stage
        self._batches = [
            writer.buffer(name, BufferKind.FEATURE_MAP, workload.map_bytes(0), stage) for name in BATCH_AHEAD_NAMES
        ]
        if workload.mode is Mode.INFERENCE or not temporary_maps:
            return
        for buffer, owner in buffers.resident:
            layer = workload.graph.layers[owner]
            if layer.kind is LayerKind.BN and writer.kind(buffer) is BufferKind.STATISTICS:
                nbytes = writer.nbytes(buffer) + TEMPORARY_MAPS * workload.map_bytes(layer.output)
                name = f"internals of {layer.name}"
                self._holders[buffer] = writer.buffer(name, BufferKind.STATISTICS, nbytes, layer.stage)

    def allocate(self) -> None:
        """Allocate them all."""
        for buffer, layer in self._buffers.resident:
            if buffer in self._holders:
                self._writer.allocate(self._holders[buffer], layer, Phase.FORWARD)
                self._writer.alias(buffer, self._holders[buffer])
            else:
                self._writer.allocate(buffer, layer, Phase.FORWARD)
        for batch in self._batches:
            self._writer.allocate(batch, 0, Phase.FORWARD)

    def release(self) -> None:
        """Release them all."""
        for batch in self._batches:
            self._writer.release(batch)
        for buffer, _ in self._buffers.resident:
            self._writer.release(buffer)
            if buffer in self._holders:
                self._writer.release(self._holders[buffer])
