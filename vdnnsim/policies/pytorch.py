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
from typing import ClassVar, Final

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.step import BufferKind, Step, StepOperation, WeightGradients
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.buckets import with_kept_gradients
from vdnnsim.plans.operations import Allocate, Compute, Operation, Release
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import ByRule
from vdnnsim.policies.interface import DecidedBy, Setting

_CAST: Final = "aten._to_copy.default"


def pytorch_loop(workload: Workload, *, set_to_none: bool) -> Workload:
    """Return a workload as a PyTorch loop runs it, which drops the weight gradients or keeps their memory."""
    gradients = WeightGradients.DROPPED if set_to_none else WeightGradients.KEPT
    return replace(workload.saved_by(SavingRule.AUTOGRAD), weight_gradients=gradients)


def with_cached_casts(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan in which autocast's cache holds the narrow copies of parameters until the end of forward.

    It does so whatever autograd saves, as `torch.utils.checkpoint` and `save_on_cpu` do not, but for parameters that
    need no gradient (`cached_cast` in aten/src/ATen/autocast_mode.cpp). `plan.apply` frees them earlier.
    """
    if not isinstance(plan.workload, CapturedWorkload) or not (copies := _cached_casts(plan.workload)):
        return plan
    operations, held, is_forward = list[Operation](), list[Operation](), True
    for each in plan.operations:
        if isinstance(each, Allocate | Compute) and each.phase is not Phase.FORWARD:
            is_forward = False
        elif isinstance(each, Compute) and not each.repeat:
            is_forward = True
        if held and not is_forward:
            operations += held
            held = []
        is_cached = isinstance(each, Release) and plan.buffers[each.buffer].storage in copies
        (held if is_cached and is_forward else operations).append(each)
    return replace(plan, operations=(*operations, *held))


def cached_casts_bytes(workload: CapturedWorkload) -> int:
    """Return the bytes of the narrow copies of parameters that autocast's cache holds when forward ends."""
    return sum(workload.step.storages[each].nbytes for each in _cached_casts(workload))


def _cached_casts(workload: CapturedWorkload) -> set[int]:
    step = workload.step
    if workload.captured.precision.autocast is None:
        return set()
    differentiated = {each.forward for each in step.operations if each.phase.is_backward}
    return {
        step.tensors[operand.memory].storage
        for number, each in enumerate(step.operations)
        if each.name == _CAST and number in differentiated and _reads_parameter(step, each)
        for operand in each.operands
        if operand.access.writes
    }


def _reads_parameter(step: Step, operation: StepOperation) -> bool:
    read = (step.storages[step.tensors[each.memory].storage] for each in operation.operands if each.access.reads)
    return any(each.given and each.kind is BufferKind.WEIGHTS for each in read)


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
