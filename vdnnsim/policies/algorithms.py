"""Which algorithm each kernel uses: the rules of the vDNN paper and of TensorFlow, what a greedy pass makes of them.

TensorFlow before 1.3 times every algorithm of cuDNN once and takes the fastest, but leaves out Winograd's that is not
fused unless the user asks for it (TF_ENABLE_WINOGRAD_NONFUSED; github.com/tensorflow/tensorflow/issues/9339), and what
needs more than 4 GiB of workspace (`1LL << 32` beside TF_CUDNN_WORKSPACE_LIMIT_IN_MB in its kernels of convolutions).
"""

from collections.abc import Callable, Mapping
from enum import Enum

from vdnnsim.cost.table import CostTable, KernelChoice, KernelCost
from vdnnsim.cost.workspace import WINOGRAD_NONFUSED
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.units import GIB


class Algorithms(Enum):
    """(m) takes the algorithm with the least workspace for every layer, (p) the fastest, (tensorflow) as above."""

    MEMORY_OPTIMAL = "m"
    PERFORMANCE_OPTIMAL = "p"
    TENSORFLOW = "tensorflow"


_TENSORFLOW_WORKSPACE_BYTES = 4 * GIB


def choose_kernels(workload: Workload, costs: CostTable, algorithms: Algorithms) -> KernelChoice:
    """Choose the kernels of a whole workload by one rule."""
    choose = _RULES[algorithms]
    return {
        (layer.index, phase): choose(costs, layer.index, phase)
        for layer in workload.graph.layers
        for phase in workload.phases(layer)
    }


def _tensorflow(costs: CostTable, layer: int, phase: Phase) -> KernelCost:
    for kernel in costs.options(layer, phase):
        if kernel.algorithm != WINOGRAD_NONFUSED and kernel.workspace_bytes <= _TENSORFLOW_WORKSPACE_BYTES:
            return kernel
    return costs.memory_optimal(layer, phase)


_RULES: Mapping[Algorithms, Callable[[CostTable, int, Phase], KernelCost]] = {
    Algorithms.MEMORY_OPTIMAL: CostTable.memory_optimal,
    Algorithms.PERFORMANCE_OPTIMAL: CostTable.fastest,
    Algorithms.TENSORFLOW: _tensorflow,
}
