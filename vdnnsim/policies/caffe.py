"""`caffe`: BVLC Caffe, the baseline of Layrub (Jin et al., TACO 2018, 5.1): activations and gradients network-wide.

A blob holds data and diff, and every blob lives from the first iteration to the last. So each feature map has its
gradient map; layers in place share the blob of their input. Where several layers read a map Caffe inserts a Split,
whose outputs share the data and have a diff each (src/caffe/layers/split_layer.cpp): a map of n readers has n + 1
diffs. Counted so, with batch normalization in place, ResNet-152 at batch 32 has the 11.61 GB (GiB) of Table 1.

Caffe's batch normalization keeps a copy of what it normalized all the same, data and diff: here its X and dX, which
stand among the maps and gradients. Its temporary maps, which are no blobs of the network either, count as statistics of
their layer (`vdnnsim.policies.iterations.caffe_layers`).
"""

from typing import ClassVar

from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Phase
from vdnnsim.plan.lowering import lower
from vdnnsim.plan.schedule import iteration
from vdnnsim.plan.schemes import ByLifetime, Draft
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.algorithms import kernels_within
from vdnnsim.policies.iterations.caffe_layers import WORKSPACE_LIMIT_BYTES, cudnn_handles, hold_what_layers_keep
from vdnnsim.policies.port import DecidedBy, Policy, Setting


class Caffe(Policy, frozen=True, kw_only=True):
    """Keep every blob."""

    name: ClassVar[str] = "caffe"
    summary: ClassVar[str] = "network-wide activations and gradients, as Caffe allocates them (Layrub paper, 5.1)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels that Caffe's limit of workspace admits."""
        workload = setting.workload
        kernels = kernels_within(workload, setting.costs, WORKSPACE_LIMIT_BYTES)
        handles = cudnn_handles(workload)
        return lower(
            iteration(workload), workload, kernels, _Blobs, label=self.label, algorithms="limited", handles=handles
        )


class _Blobs(ByLifetime):
    """Every blob is held throughout, data and diff, beside what Caffe's layers keep."""

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
