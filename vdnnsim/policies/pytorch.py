"""`pytorch`: a plain PyTorch training loop, with memory managed by autograd and the allocator alone.

Forward keeps what autograd saves (`SavingRule.AUTOGRAD`): for max pooling X and int64 indices, where cuDNN and the vDNN
paper keep X and Y; for a rectifier its output, for batch normalization X and the statistics, for dropout its mask, for
the loss the log-probabilities and the labels. Everything else is freed with its last reference: a map after its last
reader, a gradient map after the backward that reads it. Every node of backward allocates its gradients, in place or
not, but for those that an addition passes on; of several for one map all but the first are computed apart and added.
Source: PyTorch's derivatives.yaml, and `saved_tensors_hooks` and a dispatch mode that counts storages, which show what
is saved and what lives (`test_built_networks.py`).

PyTorch's allocator is `memory_model: pytorch`.

Assumptions: activations are in place, as in torchvision's networks; the gradient of a join is copied to its branches,
of which autograd makes views; running moments of batch normalizations are left out, 8 B a channel.
"""

from dataclasses import replace
from typing import ClassVar

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.step import WeightGradients
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.buckets import with_kept_gradients
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import ByRule
from vdnnsim.policies.interface import DecidedBy, Setting


def pytorch_loop(workload: Workload, *, set_to_none: bool) -> Workload:
    """Return a workload as a PyTorch loop runs it, which drops the weight gradients or keeps their memory."""
    gradients = WeightGradients.DROPPED if set_to_none else WeightGradients.KEPT
    return replace(workload.saved_by(SavingRule.AUTOGRAD), weight_gradients=gradients)


class PyTorchLoop(ByRule, frozen=True, kw_only=True):
    """A policy of a training loop in PyTorch.

    Attributes:
        set_to_none: whether `zero_grad` drops the weight gradients before each iteration, as is its default.
    """

    set_to_none: bool = True

    def loop(self, workload: Workload) -> Workload:
        return pytorch_loop(workload, set_to_none=self.set_to_none)


class PyTorch(PyTorchLoop, frozen=True, kw_only=True):
    """Keep what autograd saves, and free all else at once."""

    name: ClassVar[str] = "pytorch"
    summary: ClassVar[str] = "keeps what PyTorch's autograd saves, frees all else at once"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        # What was captured dropped them.
        keeps = isinstance(setting.workload, CapturedWorkload) and not self.set_to_none
        workload = pytorch_loop(setting.workload, set_to_none=self.set_to_none or keeps)
        plan = self.lowered(setting, iteration(workload), workload=workload)
        return with_kept_gradients(plan) if keeps else plan
