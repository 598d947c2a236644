"""`layrub_inter`: reuse between layers (Jin et al., TACO 2018, 3.3): maps leave at reference count zero.

A gradient takes a space of its own, as every blob of Caffe has one for its data and one for its diff.
"""

from typing import ClassVar

from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.layrub import Reuse, layrub_plan
from vdnnsim.policies.port import DecidedBy, Policy, Setting


class LayrubInter(Policy, frozen=True, kw_only=True):
    """Let all layers share fixed regions."""

    name: ClassVar[str] = "layrub_inter"
    summary: ClassVar[str] = "offloads at reference count zero, all layers share a few regions (Layrub paper, 3.3)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels that Caffe's limit of workspace admits."""
        return layrub_plan(setting, Reuse(within_layers=False, between_layers=True), label=self.label)
