"""Softmax and cross entropy: log-probabilities in Y, and the mean over the batch of what the true classes lack.

The same calls in the same order as `torch.nn.functional.cross_entropy`.
"""

import torch

from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.site import Site, given
from calibration.kernels.tensors import Part
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import ExecutionRefused

_MEAN = 1
_CLASS_DIMENSION = 1
_TO_FLOAT32 = False
_NO_CLASS_WEIGHTS = None
_IGNORE_INDEX = -100


def softmax_loss_kernels(site: Site, phase: Phase) -> tuple[Kernel, ...]:
    """Return the one kernel for a phase of the loss.

    Raises:
        ExecutionRefused: what it reads is no vector.
    """
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
