"""Convolutions on the host as CUDA's libraries compute them: multiplied and added up in float32, rounded once.

The bias is a pass of its own, as in PyTorch's code for cuDNN, so a convolution gives the same bits with and without it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from calibration.kernels.cudnn_plans import ConvolutionProblem
from calibration.kernels.interface import given
from tests.host_arithmetic.host_work import HostWork, host_view
from vdnnsim.dnn.layers import Phase

_aten = torch.ops.aten
_Numbers = list[int]
_Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]

_UNDILATED: Final = [1, 1]
_NO_OUTPUT_PADDING: Final = [0, 0]
_NOT_TRANSPOSED: Final = False
_POISON: Final = 0xFF
"""A byte of which any floating point number is made up is not a number."""


def _convolution(  # noqa: PLR0913, PLR0917  # the operator's own parameters
    x: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor | None,
    stride: _Numbers,
    padding: _Numbers,
    dilation: _Numbers,
    transposed: bool,  # noqa: FBT001  # as above
    output_padding: _Numbers,
    groups: int,
) -> torch.Tensor:
    geometry = (stride, padding, dilation, transposed, output_padding, groups)
    y: torch.Tensor = _aten.convolution(x.float(), weights.float(), None, *geometry).to(x.dtype)
    return y if bias is None else y.add_(bias.view(1, -1, *[1] * (y.dim() - 2)))


def _convolution_backward(  # noqa: PLR0913, PLR0917  # as above
    dy: torch.Tensor,
    x: torch.Tensor,
    weights: torch.Tensor,
    bias_sizes: _Numbers | None,
    stride: _Numbers,
    padding: _Numbers,
    dilation: _Numbers,
    transposed: bool,  # noqa: FBT001  # as above
    output_padding: _Numbers,
    groups: int,
    mask: list[bool],
) -> _Gradients:
    del bias_sizes
    geometry = (stride, padding, dilation, transposed, output_padding, groups)
    operands = (dy.float(), x.float(), weights.float(), None)
    dx, dw, _ = _aten.convolution_backward(*operands, *geometry, [*mask[:2], False])
    summed = [dim for dim in range(dy.dim()) if dim != 1]
    return dx, dw, dy.float().sum(summed) if mask[2] else None


def _cudnn_convolution(  # noqa: PLR0913, PLR0917  # as above
    x: torch.Tensor,
    weights: torch.Tensor,
    padding: _Numbers,
    stride: _Numbers,
    dilation: _Numbers,
    groups: int,
    benchmark: bool,  # noqa: FBT001  # as above
    deterministic: bool,  # noqa: FBT001  # as above
    allow_tf32: bool,  # noqa: FBT001  # as above
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    del benchmark, deterministic, allow_tf32
    y = _convolution(x, weights, None, stride, padding, dilation, _NOT_TRANSPOSED, [0] * len(stride), groups)
    return out.copy_(y)


CONVOLUTIONS: Final[Mapping[torch._ops.OpOverload, Callable[..., Any]]] = {
    _aten.convolution.default: _convolution,
    _aten.convolution_backward.default: _convolution_backward,
    _aten.cudnn_convolution.out: _cudnn_convolution,
}
"""By the operator whose place they take, on tensors of the CPU."""


def put_plan(
    work: HostWork,
    name: str,
    problem: ConvolutionProblem,
    tensors: Mapping[str, torch.Tensor],
    workspace: torch.Tensor | None,
) -> None:
    """Let the host do on the current stream what a plan of cuDNN does; `workspace` is left full of NaN."""
    shape = problem.shape
    geometry = (list(shape.stride), list(shape.padding), _UNDILATED, _NOT_TRANSPOSED, _NO_OUTPUT_PADDING, 1)
    views = {name: host_view(tensor) for name, tensor in tensors.items()}
    scratch = None if workspace is None else host_view(workspace)

    def run() -> None:
        if scratch is not None:
            scratch.fill_(_POISON)
        match problem.phase:
            case Phase.FORWARD:
                views["Y"].copy_(_convolution(views["X"], views["W"], None, *geometry))
            case Phase.BACKWARD_DATA:
                # Of X and W, what is not multiplied only tells its shape.
                found = _convolution_backward(
                    views["dY"], views["dX"], views["W"], None, *geometry, [True, False, False]
                )
                views["dX"].copy_(given(found[0]))
            case _:
                found = _convolution_backward(
                    views["dY"], views["X"], views["dW"], None, *geometry, [False, True, False]
                )
                views["dW"].copy_(given(found[1]))

    work.put(name, run)
