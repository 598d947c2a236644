"""`none`: nothing is offloaded, but everything is allocated and released layer by layer, as frameworks do.

It is the pass without offload of vDNN_dyn (MICRO 2016, III-C), and what Kim et al. (2018) call training without swap.
"""

from typing import ClassVar

from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.iterations.layerwise import PrefetchSearch, layerwise_plan
from vdnnsim.policies.port import DecidedBy, Policy, Setting


class Resident(Policy, frozen=True, kw_only=True):
    """Keep every map on the GPU until its last reader is done."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "offloads nothing, allocates and releases layer by layer"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    algorithms: Algorithms = Algorithms.PERFORMANCE_OPTIMAL

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels of one rule."""
        kernels = choose_kernels(setting.workload, setting.costs, self.algorithms)
        return layerwise_plan(
            setting.workload,
            kernels,
            frozenset(),
            PrefetchSearch.FIG10,
            label=self.label,
            algorithms=self.algorithms.value,
        )
