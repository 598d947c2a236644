"""The kernels of a workload whose layers save what autograd saves (`vdnnsim.dnn.saving`).

A library that is handed no indices of a maximum pooling finds them in workspace, and in backward a second Y beside them
(`calibration.kernels.pooling`). Where they are saved it needs neither, and takes that much less.
"""

from dataclasses import replace

from vdnnsim.cost.table import CostTable, KernelChoice
from vdnnsim.dnn.saving import IndexedPooling
from vdnnsim.dnn.workload import Workload
from vdnnsim.policies.algorithms import Algorithms, choose_kernels


def autograd_kernels(workload: Workload, costs: CostTable, algorithms: Algorithms) -> KernelChoice:
    """Choose the kernels of such a workload by one rule."""
    kernels = dict(choose_kernels(workload, costs, algorithms))
    for layer in workload.graph.layers:
        indices_bytes = workload.statistics_bytes(layer) if isinstance(layer.operator, IndexedPooling) else 0
        for phase in layer.training_phases if indices_bytes else ():
            found_bytes = indices_bytes + workload.map_bytes(layer.output) * phase.is_backward
            kernel = kernels[layer.index, phase]
            kernels[layer.index, phase] = replace(kernel, workspace_bytes=max(0, kernel.workspace_bytes - found_bytes))
    return kernels
