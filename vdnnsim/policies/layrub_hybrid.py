"""`layrub_hybrid`: both kinds of reuse (Jin et al., TACO 2018, 3.4); what the paper means where it says Layrub."""

from typing import ClassVar

from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.layrub import Reuse, layrub_plan
from vdnnsim.policies.port import DecidedBy, Policy, Setting


class LayrubHybrid(Policy, frozen=True, kw_only=True):
    """Lay dX over X, in fixed regions."""

    name: ClassVar[str] = "layrub_hybrid"
    summary: ClassVar[str] = "reuses memory within and between layers (Layrub paper, 3.4)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels that Caffe's limit of workspace admits."""
        return layrub_plan(setting, Reuse(within_layers=True, between_layers=True), label=self.label)
