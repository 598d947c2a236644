"""What a device itself says before a plan is made for it: how trials go on it, and the workspaces of its kernels.

A predicted workspace that is a byte too small makes a plan that no device can execute. A device tells which algorithms
there are and how much each needs, so a plan that is to be executed counts that for kernels that were never measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vdnnsim.cost.table import AdjustedCosts, CostModel, KernelCost
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.placement import DoesNotFit, MemoryLimits
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.port import Trial
from vdnnsim.validation.port import Executor


@dataclass(frozen=True, slots=True)
class DeviceTrials:
    """Runs each trial as one iteration on a device, as fast as it goes; one before it warms up."""

    executor: Executor
    limits: MemoryLimits

    def run_trial(self, plan: TrainingPlan) -> Trial:
        """Execute a plan; one that does not fit is not begun, and so costs nothing."""
        check_plan(plan)
        _, execution = (self.executor.execute(plan, self.limits) for _ in range(2))
        if isinstance(execution, DoesNotFit):
            return Trial(execution, 0.0)
        return Trial(execution.trace, execution.trace.iteration_s)


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


def _stated(option: KernelCost, stated: Mapping[str, int]) -> KernelCost:
    if option.origin is Origin.MEASURED:
        return option
    return replace(option, workspace_bytes=stated[option.algorithm])
