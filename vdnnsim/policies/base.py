"""`base` and `none`, which offload nothing.

`base` is the network-wide allocation that vDNN is compared with (MICRO 2016, II-C and IV-A). Everything is allocated
before the first kernel and held to the end: all feature maps, W and dW of all layers, one workspace as large as the
largest of any kernel, and the minimal number of gradient-map buffers, reused in backward
(`vdnnsim.plans.schemes`).
"""

from typing import ClassVar

from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.schemes import NetworkWide
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import ByRule
from vdnnsim.policies.interface import DecidedBy, Setting
from vdnnsim.policies.iterations.layerwise import LAYERWISE, layerwise_schedule


class Base(ByRule, frozen=True, kw_only=True):
    """Keep everything on the GPU."""

    name: ClassVar[str] = "base"
    summary: ClassVar[str] = "network-wide allocation, nothing is offloaded (vDNN paper, IV-A)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        return self.lowered(setting, iteration(setting.workload), NetworkWide)


class Resident(ByRule, frozen=True, kw_only=True):
    """Keep every map until its last reader is done, as frameworks do.

    This is the pass without offload of vDNN_dyn (MICRO 2016, III-C), and training without swap of Kim et al. (2018).
    """

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "offloads nothing, allocates and releases layer by layer"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        return self.lowered(setting, layerwise_schedule(setting.workload, ()), LAYERWISE)
