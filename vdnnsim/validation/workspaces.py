"""Workspaces of kernels that were never measured, as the device's own library states them.

A predicted workspace that is a byte too small makes a plan that no device can execute. Libraries tell how much each
algorithm needs without running it, and which there are, so a plan that is to be executed counts what they say.
"""

from collections.abc import Mapping
from dataclasses import replace

from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.validation.port import Executor


def stated_workspaces(costs: CostTable, workload: Workload, executor: Executor) -> CostTable:
    """Return costs whose unmeasured kernels are those that the device has, with the workspaces that it states.

    Where it has none of them they stay as they are, for the executor to refuse.

    Raises:
        ExecutionRefused: the device has no kernel for a phase of a layer.
    """
    kernels = dict(costs.kernels)
    for (layer, phase), options in costs.kernels.items():
        if all(option.origin is Origin.MEASURED for option in options):
            continue
        stated = executor.workspaces(workload.graph.layers[layer], phase)
        kept = tuple(_stated(option, stated) for option in options if option.algorithm in stated)
        kernels[layer, phase] = kept or options
    return CostTable(kernels)


def _stated(option: KernelCost, stated: Mapping[str, int | None]) -> KernelCost:
    nbytes = stated[option.algorithm]
    return option if option.origin is Origin.MEASURED or nbytes is None else replace(option, workspace_bytes=nbytes)
