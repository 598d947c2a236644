"""Workspaces of kernels that were never measured, as the device's own library states them.

A predicted workspace that is a byte too small makes a plan that no device can execute. Libraries tell how much each
algorithm needs without running it, and which there are, so a plan that is to be executed counts what they say.
"""

from collections.abc import Mapping
from dataclasses import replace

from vdnnsim.cost.table import AdjustedCosts, CostModel, KernelCost
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.validation.port import Executor


def stated_workspaces(model: CostModel, executor: Executor) -> CostModel:
    """Return costs whose unmeasured kernels are those that the device has, with the workspaces that it states.

    Where it has none of them they stay as they are, for the executor to refuse; it also refuses, with
    `ExecutionRefused` when a table is built, a phase of a layer for which it has no kernel.
    """

    def adjust(
        workload: Workload, layer: Layer, phase: Phase, options: tuple[KernelCost, ...]
    ) -> tuple[KernelCost, ...]:
        if all(option.origin is Origin.MEASURED for option in options):
            return options
        stated = executor.workspaces(workload, layer, phase)
        return tuple(_stated(option, stated) for option in options if option.algorithm in stated) or options

    return AdjustedCosts(model, adjust)


def _stated(option: KernelCost, stated: Mapping[str, int | None]) -> KernelCost:
    nbytes = stated[option.algorithm]
    return option if option.origin is Origin.MEASURED or nbytes is None else replace(option, workspace_bytes=nbytes)
