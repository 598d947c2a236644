"""Fully connected layers, and softmax with cross entropy: calls of aten that write into the caller's tensors.

X is a matrix (N, features) in the order channels, rows, columns. In `channels_last` no view of a map has that order, so
X is copied into workspace.

Y of the loss has log-probabilities, by the same calls in the same order as `torch.nn.functional.cross_entropy`.
"""

import torch

from calibration.kernels.interface import Kernel, KernelTensors, Site, deposit, given
from calibration.kernels.tensors import Part
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import ExecutionRefused


def fully_connected_kernels(site: Site, phase: Phase) -> tuple[Kernel, ...]:
    x = site.layer.in_shapes[0]
    reordered = site.channels_last and x.height * x.width > 1
    copy = (Part((site.workload.batch_size, x.elements), site.dtype),)

    def forward(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        weights, bias = site.weights(tensors.weights)
        torch.addmm(given(bias), _rows(tensors.inputs[0], parts), weights.t(), out=given(tensors.output).flatten(1))

    def backward_data(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        weights, _ = site.weights(tensors.weights)
        dx = given(tensors.input_gradients[0])
        result = parts[0] if parts else dx.flatten(1)
        torch.mm(given(tensors.output_gradient).flatten(1), weights, out=result)
        if parts:
            deposit(result.view(dx.shape), dx, added=tensors.accumulates[0])

    def backward_weights(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        weight_gradient, bias_gradient = site.weights(tensors.weight_gradient)
        dy = given(tensors.output_gradient).flatten(1)
        torch.mm(dy.t(), _rows(tensors.inputs[0], parts), out=weight_gradient)
        torch.sum(dy, 0, out=given(bias_gradient))

    match phase:
        case Phase.FORWARD:
            return site.only(forward, copy if reordered else (), allocates=True)
        case Phase.BACKWARD_DATA:
            return site.only(backward_data, copy if reordered or site.added_to(0) else (), allocates=True)
        case _:
            return site.only(backward_weights, copy if reordered else (), allocates=True)


def _rows(x: torch.Tensor, parts: list[torch.Tensor]) -> torch.Tensor:
    """Return X as (N, features), copied into the workspace if there is one."""
    if not parts:
        return x.flatten(1)
    parts[0].view(x.shape).copy_(x)
    return parts[0]


_MEAN = 1
_CLASS_DIMENSION = 1
_TO_FLOAT32 = False
_NO_CLASS_WEIGHTS = None
_IGNORE_INDEX = -100


def softmax_loss_kernels(site: Site, phase: Phase) -> tuple[Kernel, ...]:
    """Return the one kernel for a phase of the loss, or raise ExecutionRefused where its input is not a vector."""
    logits = site.layer.in_shapes[0]
    if logits.height * logits.width > 1:
        raise ExecutionRefused(f"{site.layer.name}: reads maps of {logits}; a loss is computed of vectors")
    scalars = (Part((), site.dtype), Part((), site.dtype))

    def forward(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        loss, total_weight = parts
        log_probabilities = given(tensors.output).flatten(1)
        torch.ops.aten._log_softmax.out(  # noqa: SLF001 - its public form has no variant that writes into a tensor
            tensors.inputs[0].flatten(1), _CLASS_DIMENSION, _TO_FLOAT32, out=log_probabilities
        )
        torch.ops.aten.nll_loss_forward.output(
            log_probabilities,
            given(tensors.labels),
            _NO_CLASS_WEIGHTS,
            _MEAN,
            _IGNORE_INDEX,
            output=loss,
            total_weight=total_weight,
        )
        given(tensors.loss).copy_(loss)

    def backward(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        loss_gradient, total_weight = parts
        dx = given(tensors.input_gradients[0]).flatten(1)
        log_probabilities = given(tensors.output).flatten(1)
        loss_gradient.fill_(1)
        total_weight.fill_(site.workload.batch_size)
        torch.ops.aten.nll_loss_backward.grad_input(
            loss_gradient,
            log_probabilities,
            given(tensors.labels),
            _NO_CLASS_WEIGHTS,
            _MEAN,
            _IGNORE_INDEX,
            total_weight,
            grad_input=dx,
        )
        # In place: a row is summed before any of it is written.
        torch.ops.aten._log_softmax_backward_data.out(  # noqa: SLF001 - as above
            dx, log_probabilities, _CLASS_DIMENSION, site.dtype, out=dx
        )

    assert not site.added_to(0), "a loss comes last, so it is the first to write the gradient of what it reads"
    return site.only(forward if phase is Phase.FORWARD else backward, scalars, allocates=True)
