"""`caffe`: BVLC Caffe, the baseline of Layrub (Jin et al., TACO 2018, 5.1): activations and gradients network-wide.

A blob holds data and diff, and every blob lives from the first iteration to the last. So each feature map has its
gradient map; layers in place share the blob of their input. Where several layers read a map Caffe inserts a Split,
whose outputs share the data and have a diff each (src/caffe/layers/split_layer.cpp): a map of n readers has n + 1
diffs. Counted so, with batch normalization in place, ResNet-152 at batch 32 has the 11.61 GB (GiB) of Table 1.

Caffe's batch normalization works in place and keeps a copy of its input, data and diff, which are its X and dX here.
It keeps a temporary map besides, and so does the Scale after it (batch_norm_layer.cpp, scale_layer.cpp); these are no
blobs of the network and count as statistics of their layer.

cuDNN chooses the fastest algorithm with at most 8 MiB of workspace (`workspace_limit_bytes`), else the least workspace.
Each CONV layer holds a workspace for each of its three streams; kernels run one after the other here and share one,
which takes some KiB. Each stream has a handle, which takes device memory. Source: github.com/BVLC/caffe,
src/caffe/layers/cudnn_conv_layer.cpp.

A data layer reads four batches ahead into device memory (`prefetch` of DataParameter in src/caffe/proto/caffe.proto,
src/caffe/layers/base_data_layer.cpp), of which the one that is trained on is the input here.
"""

from typing import ClassVar, Final

from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.schemes import ByLifetime, Draft
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.algorithms import kernels_within
from vdnnsim.policies.interface import DecidedBy, Policy, Setting

WORKSPACE_LIMIT_BYTES: Final = 8 * 2**20
HANDLES_PER_CONVOLUTION: Final = 3
"""Of cuDNN: each CONV layer opens one for each of its streams."""

TEMPORARY_MAPS: Final = 2
"""Of a batch normalization: its own, and that of its Scale; each as large as Y."""

BATCH_AHEAD_NAMES: Final = ("batch 1 ahead", "batch 2 ahead", "batch 3 ahead")
"""Buffers of the batches that are read ahead."""


class Caffe(Policy, frozen=True, kw_only=True):
    """Allocate every blob network-wide."""

    name: ClassVar[str] = "caffe"
    summary: ClassVar[str] = "network-wide activations and gradients, as Caffe allocates them (Layrub paper, 5.1)"
    only_built: ClassVar[str] = "allocates the buffers of Caffe's layers"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        workload = setting.workload
        kernels = kernels_within(workload, setting.costs, WORKSPACE_LIMIT_BYTES)
        handles = cudnn_handles(workload)
        return lower(
            iteration(workload), workload, kernels, _Blobs, label=self.label, algorithms="limited", handles=handles
        )


class _Blobs(ByLifetime):
    """Every blob is held throughout, data and diff, and the internals of layers."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(draft, holds_statistics=True)
        hold_what_layers_keep(self, draft)
        for each in draft.workload.graph.maps:
            self.held.append((draft.buffers.maps[each.index], each.producer or 0, Phase.FORWARD))
            if each.index in draft.buffers.gradients:
                self._hold_diffs(each)
        self._share_workspace()

    def _hold_diffs(self, feature_map: FeatureMap) -> None:
        gradient, readers = self._buffers.gradients[feature_map.index], len(feature_map.consumers)
        last_reader = self._draft.workload.graph.layers[feature_map.consumers[-1]]
        on_behalf = last_reader.index, last_reader.backward_phases[0]
        if readers > 1:
            name, nbytes = f"diffs of {feature_map.name}", (1 + readers) * self._plan.nbytes(gradient)
            diffs = self._plan.buffer(name, BufferKind.GRADIENT_MAP, nbytes, feature_map.stage)
            self.held.append((diffs, *on_behalf))
            self.lies_in[gradient] = [diffs]
        self.held.append((gradient, *on_behalf))


def cudnn_handles(workload: Workload) -> int:
    return HANDLES_PER_CONVOLUTION * sum(layer.kind is LayerKind.CONV for layer in workload.graph.layers)


def hold_what_layers_keep(scheme: ByLifetime, draft: Draft, *, temporary_maps: bool = True) -> None:
    """Hold the batches ahead throughout, and optionally the temporary maps of batch normalization as statistics."""
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
