"""`layrub_intra`: reuse within layers (Jin et al., TACO 2018, 3.2): gradients lie over activations.

All maps stay on the GPU, network-wide as in Caffe; the records of rectifiers alone go to the host and come back.
"""

from typing import ClassVar

from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.layrub import Reuse, layrub_plan
from vdnnsim.policies.port import DecidedBy, Policy, Setting


class LayrubIntra(Policy, frozen=True, kw_only=True):
    """Lay dX over X."""

    name: ClassVar[str] = "layrub_intra"
    summary: ClassVar[str] = "lays gradients over activations (Layrub paper, 3.2)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels that Caffe's limit of workspace admits."""
        return layrub_plan(setting, Reuse(within_layers=True, between_layers=False), label=self.label)
