"""Element-wise kernels: rectifiers, sums, concatenations, and updates of weights.

Updates are those of `torch.optim` on one tensor, in place, without weight decay, Nesterov's momentum and AMSGrad as by
default there. The iteration is the second of a training, so that optimizer states are not empty.
"""

import torch

from calibration.kernels.interface import Kernel, KernelTensors, Site, deposit, given
from calibration.kernels.tensors import Part
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Optimizer


def activation_kernels(site: Site, phase: Phase) -> tuple[Kernel, ...]:
    """Return the one kernel for a phase of a rectifier in place: Y over X, dX over dY.

    If the plan keeps a mask, forward writes which elements it made zero, and backward reads it instead of Y.
    """

    def forward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        y = given(tensors.output).relu_()
        if tensors.statistics is not None:
            torch.le(y, 0, out=tensors.statistics)

    def backward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        threshold = 0
        if tensors.statistics is not None:
            given(tensors.input_gradients[0]).masked_fill_(tensors.statistics, threshold)
            return
        torch.ops.aten.threshold_backward.grad_input(
            given(tensors.output_gradient),
            given(tensors.output),
            threshold,
            grad_input=given(tensors.input_gradients[0]),
        )

    return site.only(forward if phase is Phase.FORWARD else backward)


def add_kernels(site: Site, phase: Phase) -> tuple[Kernel, ...]:
    """Return the one kernel for a phase of an element-wise sum; its gradient goes to both inputs as it is."""

    def forward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        torch.add(*tensors.inputs, out=given(tensors.output))

    def backward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        for dx, added in zip(tensors.input_gradients, tensors.accumulates, strict=True):
            if dx is not None:
                deposit(given(tensors.output_gradient), dx, added=added)

    return site.only(forward if phase is Phase.FORWARD else backward)


def concat_kernels(site: Site, phase: Phase) -> tuple[Kernel, ...]:
    def forward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        torch.cat(tensors.inputs, 1, out=given(tensors.output))

    def backward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        channels = [shape.channels for shape in site.layer.in_shapes]
        slices = torch.split(given(tensors.output_gradient), channels, 1)
        for incoming, dx, added in zip(slices, tensors.input_gradients, tensors.accumulates, strict=True):
            if dx is not None:
                deposit(incoming, dx, added=added)

    # On CUDA `cat` may pass the addresses of its inputs in device memory.
    return site.only(forward, allocates=True) if phase is Phase.FORWARD else site.only(backward)


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
