"""`pytorch`: a training loop as users write it, with nothing managed but what autograd and its allocator manage.

Forward keeps what autograd saves (`SavingRule.AUTOGRAD`): for a maximum pooling X and int64 indices, where cuDNN and
the vDNN paper keep X and Y; for a rectifier its output, for batch normalization X and the statistics, for dropout its
mask.
Everything else dies with its last reference: a map after its last reader, saved or not, a gradient map after the
backward that reads it. Source: PyTorch's derivatives.yaml, and `torch.autograd.graph.saved_tensors_hooks`, which shows
what is saved.

Where its buffers lie is decided by the memory model of the scenario; PyTorch's own is `memory_model: pytorch`.

What is read into it: activations are in place, as in torchvision's networks; W gradients are kept from iteration to
iteration (`zero_grad(set_to_none=False)`), the reading that all policies share; the loss is one layer, of which log
softmax saves the output.
"""

from typing import ClassVar

from vdnnsim.dnn.operator import SavingRule
from vdnnsim.plan.lowering import lower
from vdnnsim.plan.schedule import iteration
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.port import Policy, Setting


class PyTorch(Policy, frozen=True, kw_only=True):
    """Keep what autograd saves, free all else at once."""

    name: ClassVar[str] = "pytorch"
    summary: ClassVar[str] = "keeps what PyTorch's autograd saves, frees all else at once"

    algorithms: Algorithms = Algorithms.PERFORMANCE_OPTIMAL

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels of one rule."""
        workload = setting.workload.saved_by(SavingRule.AUTOGRAD)
        kernels = choose_kernels(workload, setting.costs_of(workload), self.algorithms)
        label, algorithms = self.label, self.algorithms.value
        return lower(iteration(workload), workload, kernels, label=label, algorithms=algorithms)
