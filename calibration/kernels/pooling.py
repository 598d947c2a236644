"""Pooling, by aten's calls that write into a given tensor.

Backward of maximum pooling needs the indices of the maxima. A plan that saves as autograd does has a buffer for them.
Any other saves X and Y, as cuDNN's call does; the indices are then recomputed from X, with a second Y, in workspace.
"""

import torch

from calibration.kernels.interface import Kernel, KernelTensors, Site, deposit, given
from calibration.kernels.tensors import Part, shaped_view
from vdnnsim.dnn.convolutional import Pooling
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import SavingRule

_DILATION = (1, 1)
_CEIL_MODE = False
_COUNT_INCLUDE_PAD = True
_DIVISOR_OVERRIDE = None


def pooling_kernels(site: Site, operator: Pooling, phase: Phase) -> tuple[Kernel, ...]:
    kernels = _average_kernels if operator.average else _maximum_kernels
    # A dX that is accumulated is written to a tensor of its own first.
    adds = phase is not Phase.FORWARD and site.added_to(0)
    return kernels(site, operator, phase, (site.map_part(site.layer.in_shapes[0]),) if adds else ())


def _maximum_kernels(site: Site, operator: Pooling, phase: Phase, sums: tuple[Part, ...]) -> tuple[Kernel, ...]:
    window = operator.kernel, operator.stride, operator.padding, _DILATION, _CEIL_MODE
    indices = site.map_part(site.layer.out_shape, torch.int64)
    keeps = site.workload.graph.saving is SavingRule.AUTOGRAD

    def kept(tensors: KernelTensors) -> torch.Tensor:
        elements = given(tensors.statistics).view(indices.dtype)
        return shaped_view(elements, indices.shape, channels_last=indices.channels_last)

    def find_maxima(x: torch.Tensor, y: torch.Tensor, found: torch.Tensor) -> None:
        torch.ops.aten.max_pool2d_with_indices.out(x, *window, out=y, indices=found)

    def forward(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        find_maxima(tensors.inputs[0], given(tensors.output), kept(tensors) if keeps else parts[0])

    def backward(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        if keeps:
            found = kept(tensors)
        else:
            found, maxima, *parts = parts
            # Not into Y itself: a layer in place may have overwritten it, and a copy may be reading it.
            find_maxima(tensors.inputs[0], maxima, found)
        dx = given(tensors.input_gradients[0])
        torch.ops.aten.max_pool2d_with_indices_backward.grad_input(
            given(tensors.output_gradient), tensors.inputs[0], *window, found, grad_input=parts[0] if parts else dx
        )
        if parts:
            deposit(parts[0], dx, added=True)

    if phase is Phase.FORWARD:
        return site.only(forward, () if keeps else (indices,))
    return site.only(backward, sums if keeps else (indices, site.map_part(site.layer.out_shape), *sums))


def _average_kernels(site: Site, operator: Pooling, phase: Phase, sums: tuple[Part, ...]) -> tuple[Kernel, ...]:
    window = operator.kernel, operator.stride, operator.padding, _CEIL_MODE, _COUNT_INCLUDE_PAD, _DIVISOR_OVERRIDE

    def forward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        torch.ops.aten.avg_pool2d.out(tensors.inputs[0], *window, out=given(tensors.output))

    def backward(tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        dx = given(tensors.input_gradients[0])
        # Only the sizes of X are read, and it may be released: dX has the same.
        torch.ops.aten.avg_pool2d_backward.grad_input(
            given(tensors.output_gradient), dx, *window, grad_input=parts[0] if parts else dx
        )
        if parts:
            deposit(parts[0], dx, added=True)

    return site.only(forward if phase is Phase.FORWARD else backward, sums)
