"""Pooling, by aten's calls that write into a given tensor.

Backward of a maximum needs to know where each maximum lay. A plan that saves as autograd does has a buffer for the
indices. Any other saves X and Y, as cuDNN's call wants them, and no indices; so they are found again from X, with a
second Y beside them, in workspace.
"""

import torch

from calibration.kernels.port import Kernel, KernelTensors
from calibration.kernels.site import Run, Site, deposit, given
from calibration.kernels.tensors import Part, shaped_view
from vdnnsim.dnn.convolutional import Pooling
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import SavingRule

_DILATION = (1, 1)
_CEIL_MODE = False
_COUNT_INCLUDE_PAD = True
_DIVISOR_OVERRIDE = None


def pooling_kernels(site: Site, operator: Pooling, phase: Phase) -> tuple[Kernel, ...]:
    """Return the one kernel for a phase of a pooling layer."""
    layer = site.layer
    forward = phase is Phase.FORWARD
    # Where dX is added to a gradient, aten still wants a tensor of its own to write.
    sums = (site.map_part(layer.in_shapes[0]),) if not forward and site.added_to(0) else ()
    if operator.average:
        return site.only(_average_forward(operator) if forward else _average_backward(operator), sums)
    indices = site.map_part(layer.out_shape, torch.int64)
    if site.workload.graph.saving is SavingRule.AUTOGRAD:
        return site.only(_indexed_forward(operator, indices) if forward else _indexed_backward(operator, indices), sums)
    if forward:
        return site.only(_maximum_forward(operator), (indices,))
    maxima: tuple[Part, ...] = (indices, site.map_part(layer.out_shape))
    return site.only(_maximum_backward(operator), maxima + sums)


def _maximum_forward(operator: Pooling) -> Run:
    def run(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        _find_maxima(operator, tensors.inputs[0], given(tensors.output), parts[0])

    return run


def _maximum_backward(operator: Pooling) -> Run:
    def run(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        indices, maxima, *sums = parts
        # Not into Y itself: a layer in place may have rewritten it, and a copy may be reading it.
        _find_maxima(operator, tensors.inputs[0], maxima, indices)
        _give_to_maxima(operator, tensors, indices, sums)

    return run


def _indexed_forward(operator: Pooling, indices: Part) -> Run:
    def run(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        _find_maxima(operator, tensors.inputs[0], given(tensors.output), _kept(tensors, indices))

    return run


def _indexed_backward(operator: Pooling, indices: Part) -> Run:
    def run(tensors: KernelTensors, sums: list[torch.Tensor]) -> None:
        _give_to_maxima(operator, tensors, _kept(tensors, indices), sums)

    return run


def _kept(tensors: KernelTensors, indices: Part) -> torch.Tensor:
    elements = given(tensors.statistics).view(indices.dtype)
    return shaped_view(elements, indices.shape, channels_last=indices.channels_last)


def _give_to_maxima(operator: Pooling, tensors: KernelTensors, indices: torch.Tensor, sums: list[torch.Tensor]) -> None:
    dx = given(tensors.input_gradients[0])
    result = sums[0] if sums else dx
    torch.ops.aten.max_pool2d_with_indices_backward.grad_input(
        given(tensors.output_gradient),
        tensors.inputs[0],
        operator.kernel,
        operator.stride,
        operator.padding,
        _DILATION,
        _CEIL_MODE,
        indices,
        grad_input=result,
    )
    if sums:
        deposit(result, dx, added=True)


def _find_maxima(operator: Pooling, x: torch.Tensor, y: torch.Tensor, indices: torch.Tensor) -> None:
    torch.ops.aten.max_pool2d_with_indices.out(
        x, operator.kernel, operator.stride, operator.padding, _DILATION, _CEIL_MODE, out=y, indices=indices
    )


def _average_forward(operator: Pooling) -> Run:
    def run(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        torch.ops.aten.avg_pool2d.out(
            tensors.inputs[0],
            operator.kernel,
            operator.stride,
            operator.padding,
            _CEIL_MODE,
            _COUNT_INCLUDE_PAD,
            _DIVISOR_OVERRIDE,
            out=given(tensors.output),
        )

    return run


def _average_backward(operator: Pooling) -> Run:
    def run(tensors: KernelTensors, sums: list[torch.Tensor]) -> None:
        dx = given(tensors.input_gradients[0])
        result = sums[0] if sums else dx
        torch.ops.aten.avg_pool2d_backward.grad_input(
            given(tensors.output_gradient),
            # Asked for its sizes alone; X may be gone.
            dx,
            operator.kernel,
            operator.stride,
            operator.padding,
            _CEIL_MODE,
            _COUNT_INCLUDE_PAD,
            _DIVISOR_OVERRIDE,
            grad_input=result,
        )
        if sums:
            deposit(result, dx, added=True)

    return run
