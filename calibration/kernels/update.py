"""Updates of weights, step for step those of `torch.optim` on one tensor, in place.

The iteration is the second of a training, so that every state already holds something. Weight decay, Nesterov's
momentum and AMSGrad are left out, as in the defaults of `torch.optim`.
"""

import torch

from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.site import Site, given
from calibration.kernels.tensors import Part
from vdnnsim.dnn.workload import Optimizer

LEARNING_RATE = 0.01
"""Of SGD with and without momentum, as the networks of the vDNN paper were trained."""

MOMENTUM = 0.9

ADAM_LEARNING_RATE = 0.001
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
"""Defaults of `torch.optim.Adam`, all three."""

STEP = 2
"""The number of the step, from 1; Adam's correction of bias depends on it."""


def update_kernels(site: Site) -> tuple[Kernel, ...]:
    """Return the one kernel that updates the weights of a layer."""
    match site.workload.optimizer:
        case Optimizer.SGD:
            return site.only(_sgd)
        case Optimizer.MOMENTUM:
            return site.only(_momentum)
        case Optimizer.ADAM:
            return site.only(_adam, (Part((site.layer.parameters,), site.dtype),))
        case Optimizer.NONE:
            raise AssertionError("a workload without an optimizer has no update")


def _sgd(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
    given(tensors.weights).add_(given(tensors.weight_gradient), alpha=-LEARNING_RATE)


def _momentum(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
    (velocity,) = tensors.states
    velocity.mul_(MOMENTUM).add_(given(tensors.weight_gradient), alpha=1)
    given(tensors.weights).add_(velocity, alpha=-LEARNING_RATE)


def _adam(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
    mean, mean_square = tensors.states
    gradient, (denominator,) = given(tensors.weight_gradient), parts
    beta_1, beta_2 = ADAM_BETAS
    mean.lerp_(gradient, 1 - beta_1)
    mean_square.mul_(beta_2).addcmul_(gradient, gradient, value=1 - beta_2)
    step_size = ADAM_LEARNING_RATE / (1 - beta_1**STEP)
    torch.sqrt(mean_square, out=denominator)
    denominator.div_((1 - beta_2**STEP) ** 0.5).add_(ADAM_EPSILON)
    given(tensors.weights).addcdiv_(mean, denominator, value=-step_size)
