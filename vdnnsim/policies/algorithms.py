"""Choice of algorithms for kernels: the rules of the vDNN paper and of TensorFlow, and the fastest within a limit.

TensorFlow before 1.3 times every algorithm of cuDNN once and takes the fastest, except non-fused Winograd unless the
user enables it (TF_ENABLE_WINOGRAD_NONFUSED; github.com/tensorflow/tensorflow/issues/9339), and those with more than
4 GiB of workspace (`1LL << 32` beside TF_CUDNN_WORKSPACE_LIMIT_IN_MB in its convolution kernels).
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import partial
from typing import Final

from vdnnsim.cost.table import CostTable, KernelChoice, KernelCost, fastest_of
from vdnnsim.cost.workspace import WINOGRAD_NONFUSED
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.plans.schedule import Schedule
from vdnnsim.plans.schemes import ByLifetime, Scheme
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.interface import Policy, Setting
from vdnnsim.units import GIB


class Algorithms(Enum):
    """(m) takes the algorithm with the least workspace for every layer, (p) the fastest, (tensorflow) as above."""

    MEMORY_OPTIMAL = "m"
    PERFORMANCE_OPTIMAL = "p"
    TENSORFLOW = "tensorflow"


TENSORFLOW_WORKSPACE_BYTES: Final = 4 * GIB
"""The default of TF_CUDNN_WORKSPACE_LIMIT_IN_MB."""


class ByRule(Policy, frozen=True, kw_only=True):
    """A policy whose kernels are chosen by one rule; `algorithms` is the rule."""

    algorithms: Algorithms = Algorithms.PERFORMANCE_OPTIMAL

    def kernels(self, setting: Setting, workload: Workload) -> KernelChoice:
        """Choose the kernels of a workload, which may be another than the setting's."""
        return choose_kernels(workload, setting.costs_of(workload), self.algorithms)

    def lowered(
        self,
        setting: Setting,
        schedule: Schedule,
        scheme: Scheme = ByLifetime,
        *,
        workload: Workload | None = None,
        buffers: IterationBuffers | None = None,
    ) -> TrainingPlan:
        """Return the plan of a schedule with the kernels of the rule; of the setting's workload unless given one."""
        run = workload or setting.workload
        label, algorithms = self.label, self.algorithms.value
        kernels = self.kernels(setting, run)
        return lower(schedule, run, kernels, scheme, label=label, algorithms=algorithms, buffers=buffers)


def choose_kernels(workload: Workload, costs: CostTable, algorithms: Algorithms) -> KernelChoice:
    return _chosen(workload, partial(_RULES[algorithms], costs))


def kernels_within(workload: Workload, costs: CostTable, limit_bytes: int) -> KernelChoice:
    """Choose for each kernel of a workload the fastest algorithm within a limit of workspace."""
    return _chosen(workload, partial(fastest_within, costs, limit_bytes=limit_bytes))


def fastest_within(
    costs: CostTable, layer: int, phase: Phase, limit_bytes: int, *, without: Collection[str] = ()
) -> KernelCost:
    """Return the fastest algorithm within a limit of workspace, those in `without` aside; else the least workspace."""
    return fastest_of(costs.options(layer, phase), limit_bytes, without=without)


def downgraded_until_it_fits(
    setting: Setting, kernels: KernelChoice, plan_with: Callable[[KernelChoice], TrainingPlan]
) -> TrainingPlan:
    """Replace algorithms whose workspace does not fit by the fastest with a smaller one, one after the other.

    Returns a plan that fits, or one that overflows where no algorithm can help: in a map, in host memory, or in the
    smallest workspace of a kernel; or the last one at the deadline.
    """
    costs, kernels = setting.costs, dict(kernels)
    while True:
        plan = plan_with(kernels)
        overflow = place_plan(plan, setting.limits)
        if not isinstance(overflow, DoesNotFit) or plan.buffers[overflow.buffer].kind is not BufferKind.WORKSPACE:
            return plan
        if setting.deadline.is_over:
            return plan
        where = overflow.layer, overflow.phase
        smaller = fastest_within(costs, *where, kernels[where].workspace_bytes - 1)
        if smaller.workspace_bytes >= kernels[where].workspace_bytes:
            return plan
        kernels[where] = smaller


def _chosen(workload: Workload, choose: Callable[[int, Phase], KernelCost]) -> KernelChoice:
    return {
        (layer.index, phase): choose(layer.index, phase)
        for layer in workload.graph.layers
        for phase in workload.phases(layer)
    }


_RULES: Mapping[Algorithms, Callable[[CostTable, int, Phase], KernelCost]] = {
    Algorithms.MEMORY_OPTIMAL: CostTable.memory_optimal,
    Algorithms.PERFORMANCE_OPTIMAL: CostTable.fastest,
    Algorithms.TENSORFLOW: partial(
        fastest_within, limit_bytes=TENSORFLOW_WORKSPACE_BYTES, without=(WINOGRAD_NONFUSED,)
    ),
}
