"""Convolution as the framework computes it: one call of aten a phase, copied into the caller's tensors.

aten has no variant of these calls that writes into a given tensor, but for cuDNN's forward; the results that it
allocates, and what oneDNN reorders and scratches on the CPU, are workspace that only a measurement tells.
"""

import torch

from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.site import Site, deposit, given
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import Size2

PYTORCH = "pytorch"
"""The framework's own choice of algorithm."""

_DILATION = (1, 1)
_NOT_TRANSPOSED = False
_OUTPUT_PADDING = (0, 0)
_GROUPS = 1

_Geometry = tuple[Size2, Size2, Size2, bool, Size2, int]
"""Stride, padding, dilation, whether transposed, output padding and groups, as every call of aten takes them."""


def framework_convolution(site: Site, operator: Convolution, phase: Phase) -> Kernel:
    """Return the framework's own kernel for a phase of a convolution."""

    def forward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        weights, bias = site.weights(tensors.weights)
        x, y = tensors.inputs[0], given(tensors.output)
        if _is_cudnn(operator, x, weights, bias):
            _cudnn_forward(operator, x, weights, bias, y)
            return
        y.copy_(torch.convolution(x, weights, bias, *_geometry(operator)))

    def backward_data(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        dx = given(tensors.input_gradients[0])
        # The values of X are not read for dX, and the plan may have released it: dX stands in for its shape.
        result = _backward(site, operator, tensors, dx, (True, False, False))[0]
        deposit(given(result), dx, added=tensors.accumulates[0])

    def backward_weights(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        weight_gradient, bias_gradient = site.weights(tensors.weight_gradient)
        # The values of W are not read for dW: dW stands in for its shape.
        mask = (False, True, operator.bias)
        _dx, weight_result, bias_result = _backward(site, operator, tensors, tensors.inputs[0], mask)
        weight_gradient.copy_(given(weight_result))
        if bias_gradient is not None:
            bias_gradient.copy_(given(bias_result))

    run = {Phase.FORWARD: forward, Phase.BACKWARD_DATA: backward_data, Phase.BACKWARD_WEIGHTS: backward_weights}[phase]
    return site.kernel(PYTORCH, "", run, allocates=True)


def _backward(
    site: Site, operator: Convolution, tensors: KernelTensors, x: torch.Tensor, mask: tuple[bool, bool, bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    weights, _ = site.weights(tensors.weight_gradient if mask[1] else tensors.weights)
    results: tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
    results = torch.ops.aten.convolution_backward(
        given(tensors.output_gradient),
        x,
        weights,
        [operator.out_channels] if operator.bias else None,
        *_geometry(operator),
        mask,
    )
    return results


def _geometry(operator: Convolution) -> _Geometry:
    return operator.stride, operator.padding, _DILATION, _NOT_TRANSPOSED, _OUTPUT_PADDING, _GROUPS


def _is_cudnn(operator: Convolution, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether the framework hands this convolution to cuDNN, by the framework's own word."""
    if not x.is_cuda:
        return False
    backend = torch._C._select_conv_backend(  # noqa: SLF001 - PyTorch says it nowhere else
        x,
        weights,
        bias,
        *_geometry(operator),
        [operator.out_channels] if operator.bias else None,
    )
    return backend.name == "Cudnn"


def _cudnn_forward(
    operator: Convolution, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor
) -> None:
    """Let cuDNN write Y itself; the framework adds the bias afterwards as well (aten/native/Convolution.cpp)."""
    precision = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    torch.ops.aten.cudnn_convolution.out(
        x,
        weights,
        operator.padding,
        operator.stride,
        _DILATION,
        _GROUPS,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        precision == "tf32",
        out=y,
    )
    if bias is not None:
        y.add_(bias.view(1, -1, 1, 1))
