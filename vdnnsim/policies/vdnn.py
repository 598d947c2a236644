"""`vdnn_all` and `vdnn_conv`: the static policies of vDNN (MICRO 2016, III-C).

`vdnn_all` offloads the X of every feature-extraction layer, `vdnn_conv` of the CONV layers alone. A map that several
layers read counts as a CONV layer's if any of them is one. The classifier's input stays, for vDNN leaves the
classification layers unchanged (IV-A); an in-place ACTV has no X of its own. The X of batch normalization and of
element-wise addition, which the paper does not have, are X of feature-extraction layers like any other; what backward
reads no more, as the X of an addition alone, is released and not copied.
"""

from typing import ClassVar

from vdnnsim.dnn.layers import LayerKind, Stage
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.layerwise import PrefetchSearch, layerwise_plan
from vdnnsim.policies.port import Policy, Setting


def maps_of_all(workload: Workload) -> frozenset[int]:
    """Indices of the maps that vdnn_all offloads: those that only feature-extraction layers read."""
    layers = workload.graph.layers
    return frozenset(
        each.index
        for each in workload.graph.maps
        if each.consumers and all(layers[consumer].stage is Stage.FEATURES for consumer in each.consumers)
    )


def maps_of_conv(workload: Workload) -> frozenset[int]:
    """Indices of the maps that vdnn_conv offloads."""
    return frozenset(i for i in maps_of_all(workload) if workload.graph.map_kind(i) is LayerKind.CONV)


class _Static(Policy, frozen=True, kw_only=True):
    """Offload a fixed set of maps."""

    algorithms: Algorithms = Algorithms.PERFORMANCE_OPTIMAL
    prefetch_search: PrefetchSearch = PrefetchSearch.FIG10

    def maps(self, workload: Workload) -> frozenset[int]:
        """Indices of the maps to offload."""
        raise NotImplementedError  # pragma: no cover  # each of the two says its own

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels of one rule."""
        workload = setting.workload
        kernels = choose_kernels(workload, setting.costs, self.algorithms)
        maps, label, algorithms = self.maps(workload), self.label, self.algorithms.value
        return layerwise_plan(workload, kernels, maps, self.prefetch_search, label=label, algorithms=algorithms)


class VdnnAll(_Static, frozen=True, kw_only=True):
    """Offload the X of every feature-extraction layer."""

    name: ClassVar[str] = "vdnn_all"
    summary: ClassVar[str] = "offloads the input maps of all feature-extraction layers (vDNN paper, III-C)"

    def maps(self, workload: Workload) -> frozenset[int]:
        """Maps that only feature-extraction layers read."""
        return maps_of_all(workload)


class VdnnConv(_Static, frozen=True, kw_only=True):
    """Offload the X of the CONV layers."""

    name: ClassVar[str] = "vdnn_conv"
    summary: ClassVar[str] = "offloads the input maps of the CONV layers (vDNN paper, III-C)"

    def maps(self, workload: Workload) -> frozenset[int]:
        """Maps that a CONV layer reads, among those of `vdnn_all`."""
        return maps_of_conv(workload)
