"""`vdnn_all` and `vdnn_conv`: the static policies of vDNN (MICRO 2016, III-C).

`vdnn_all` offloads the X of every feature-extraction layer, `vdnn_conv` of the CONV layers alone. A map that several
layers read counts as a CONV layer's if any of them is one. The classifier's input stays, for vDNN leaves the
classification layers unchanged (IV-A); an in-place ACTV has no X of its own. The X of batch normalization and of
element-wise addition, which the paper does not have, are X of feature-extraction layers like any other; what backward
reads no more, as the X of an addition alone, is released and not copied.
"""

from typing import ClassVar, Final

from vdnnsim.dnn.layers import LayerKind, Stage
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import InputError
from vdnnsim.plan.chunks import in_chunks
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.iterations.layerwise import PrefetchSearch, layerwise_plan
from vdnnsim.policies.port import DecidedBy, Policy, Setting
from vdnnsim.units import Dimension, parse_quantity


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


WHOLE: Final = "whole"


class _Static(Policy, frozen=True, kw_only=True):
    """Offload a fixed set of maps.

    Attributes:
        chunk: the most that a copy moves, as `64 MiB`; what has left of a map is given back while the rest of it leaves
            (`vdnnsim.plan.chunks`). Under `whole`, as in the paper, a copy moves a map.
    """

    algorithms: Algorithms = Algorithms.PERFORMANCE_OPTIMAL
    prefetch_search: PrefetchSearch = PrefetchSearch.FIG10
    chunk: str = WHOLE

    def __post_init__(self) -> None:
        """Check the size of a chunk.

        Raises:
            ValueError: it is no size, or less than a byte; msgspec makes that the refusal of the option.
        """
        try:
            if self.chunk != WHOLE and parse_quantity(self.chunk, Dimension.BYTES) < 1:
                raise ValueError(f"chunk: found {self.chunk!r}, expected at least a byte, or {WHOLE}")
        except InputError as failure:
            raise ValueError(f"chunk: {failure}, or {WHOLE}") from None

    def maps(self, workload: Workload) -> frozenset[int]:
        """Indices of the maps to offload."""
        raise NotImplementedError  # pragma: no cover  # each of the two says its own

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels of one rule."""
        workload = setting.workload
        kernels = choose_kernels(workload, setting.costs, self.algorithms)
        maps, label, algorithms = self.maps(workload), self.label, self.algorithms.value
        plan = layerwise_plan(workload, kernels, maps, self.prefetch_search, label=label, algorithms=algorithms)
        return plan if self.chunk == WHOLE else in_chunks(plan, int(parse_quantity(self.chunk, Dimension.BYTES)))


class VdnnAll(_Static, frozen=True, kw_only=True):
    """Offload the X of every feature-extraction layer."""

    name: ClassVar[str] = "vdnn_all"
    summary: ClassVar[str] = "offloads the input maps of all feature-extraction layers (vDNN paper, III-C)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def maps(self, workload: Workload) -> frozenset[int]:
        """Maps that only feature-extraction layers read."""
        return maps_of_all(workload)


class VdnnConv(_Static, frozen=True, kw_only=True):
    """Offload the X of the CONV layers."""

    name: ClassVar[str] = "vdnn_conv"
    summary: ClassVar[str] = "offloads the input maps of the CONV layers (vDNN paper, III-C)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def maps(self, workload: Workload) -> frozenset[int]:
        """Maps that a CONV layer reads, among those of `vdnn_all`."""
        return maps_of_conv(workload)
