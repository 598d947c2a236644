"""Which algorithm each kernel uses: the two rules of the vDNN paper and what a greedy pass makes of them."""

from collections.abc import Mapping
from enum import Enum

from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload

KernelChoice = Mapping[tuple[int, Phase], KernelCost]
"""The kernel chosen for each layer index and phase."""


class Algorithms(Enum):
    """(m) takes the algorithm with the least workspace for every layer, (p) the fastest."""

    MEMORY_OPTIMAL = "m"
    PERFORMANCE_OPTIMAL = "p"


def choose_kernels(workload: Workload, costs: CostTable, algorithms: Algorithms) -> KernelChoice:
    """Choose the kernels of a whole workload by one rule."""
    choose = costs.fastest if algorithms is Algorithms.PERFORMANCE_OPTIMAL else costs.memory_optimal
    return {
        (layer.index, phase): choose(layer.index, phase)
        for layer in workload.graph.layers
        for phase in workload.phases(layer)
    }
