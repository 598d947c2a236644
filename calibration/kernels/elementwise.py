"""Layers that compute nothing but a rectifier, a sum or a copy for each element; none needs workspace."""

import torch

from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.site import Site, deposit, given
from vdnnsim.dnn.layers import Phase


def activation_kernels(site: Site, phase: Phase) -> tuple[Kernel, ...]:
    """Return the one kernel for a phase of a rectifier in place: Y over X, dX over dY.

    Where the plan keeps a record, forward notes in it which elements it made zero, and backward reads it instead of Y.
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
    """Return the one kernel for a phase of a join along the channels."""

    def forward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        torch.cat(tensors.inputs, 1, out=given(tensors.output))

    def backward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        channels = [shape.channels for shape in site.layer.in_shapes]
        slices = torch.split(given(tensors.output_gradient), channels, 1)
        for incoming, dx, added in zip(slices, tensors.input_gradients, tensors.accumulates, strict=True):
            if dx is not None:
                deposit(incoming, dx, added=added)

    # On CUDA a join may hand the addresses of its inputs over in device memory.
    return site.only(forward, allocates=True) if phase is Phase.FORWARD else site.only(backward)
