"""The port through which a policy profiles on a real device instead of on the simulator."""

from dataclasses import dataclass

from vdnnsim.plan.check import check_plan
from vdnnsim.plan.placement import DoesNotFit, MemoryLimits
from vdnnsim.plan.training_plan import TrainingPlan
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
