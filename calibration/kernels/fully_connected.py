"""Fully connected layers: products of matrices written into the caller's tensors.

X counts as a matrix (N, features) in the order channels, rows, columns. Where the channels lie last and X is more than
a vector, no view has that order, and a copy of X in workspace stands in.
"""

import torch

from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.site import Site, deposit, given
from calibration.kernels.tensors import Part
from vdnnsim.dnn.layers import Phase


def fully_connected_kernels(site: Site, phase: Phase) -> tuple[Kernel, ...]:
    """Return the one kernel for a phase of a fully connected layer."""
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
    """Return X as (N, features), through a copy in the workspace if the kernel took one."""
    if not parts:
        return x.flatten(1)
    parts[0].view(x.shape).copy_(x)
    return parts[0]
