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

from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.schemes import ByLifetime, Draft
from vdnnsim.plan.training_plan import BufferKind

WORKSPACE_LIMIT_BYTES: Final = 8 * 2**20
HANDLES_PER_CONVOLUTION: Final = 3
"""Of cuDNN: each CONV layer opens one for each of its streams."""

TEMPORARY_MAPS: Final = 2
"""Of a batch normalization: its own, and that of its Scale; each as large as Y."""

BATCH_AHEAD_NAMES: Final = ("batch 1 ahead", "batch 2 ahead", "batch 3 ahead")
"""The buffers of those on the GPU beside the input that is trained on."""


def cudnn_handles(workload: Workload) -> int:
    """Return how many handles all CONV layers open."""
    return HANDLES_PER_CONVOLUTION * sum(layer.kind is LayerKind.CONV for layer in workload.graph.layers)


def hold_what_layers_keep(scheme: ByLifetime, draft: Draft, *, temporary_maps: bool = True) -> None:
    """Hold the batches ahead throughout, and, with `temporary_maps`, those of batch normalization in training.

    They stand among the statistics of their layer.
    """
    workload, plan, first = draft.workload, draft.plan, draft.workload.graph.maps[0]
    keeping = workload.graph.layers if workload.is_training and temporary_maps else ()
    for layer in keeping:
        if layer.kind is LayerKind.BN:
            statistics = workload.step.storage(BufferKind.STATISTICS, layer.index)
            nbytes = plan.nbytes(statistics) + TEMPORARY_MAPS * workload.map_bytes(layer.output)
            internals = plan.buffer(f"internals of {layer.name}", BufferKind.STATISTICS, nbytes, layer.stage)
            at = scheme.held.index((statistics, layer.index, Phase.FORWARD))
            scheme.held.insert(at, (internals, layer.index, Phase.FORWARD))
            scheme.lies_in[statistics] = [internals]
    for name in BATCH_AHEAD_NAMES:
        ahead = plan.buffer(name, BufferKind.FEATURE_MAP, workload.map_bytes(first.index), first.stage)
        scheme.held.append((ahead, 0, Phase.FORWARD))
