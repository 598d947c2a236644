"""Normalizations: by cuDNN or by PyTorch's own kernels, and the types of what they save.

Source: `aten/src/ATen/native/Normalization.cpp` (`_select_batch_norm_backend`), `native/cudnn/BatchNorm.cpp`,
`native/cuda/Normalization.cu`, `native/cuda/layer_norm_kernel.cu`, `native/layer_norm.cpp` (`rms_norm`).
"""

from typing import Final

import torch

from calibration.capture.cuda.rules import HALVES, Composites, Gpu, Kernels, Tensor, composite

aten = torch.ops.aten

_MOST_TRAINING_BATCH: Final = 880801
_MOST_EVALUATION_BATCH: Final = 65535
_MOST_ELEMENTS: Final = 2**31 - 1
"""Of what cuDNN normalizes by batch; its kernels count in 32 bits."""


def batch_norm(  # noqa: PLR0913 - the operator's
    gpu: Gpu,
    input: Tensor,  # noqa: A002 - the operator's names
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,  # noqa: FBT001
    momentum: float,
    eps: float,
    cudnn_enabled: bool,  # noqa: FBT001
) -> Tensor:
    """Normalize by batch as CUDA does."""
    del gpu
    statistics = running_mean, running_var
    most = _MOST_TRAINING_BATCH if training else _MOST_EVALUATION_BATCH
    is_cudnn = (
        cudnn_enabled
        and weight is not None
        and bias is not None
        and torch.bfloat16 not in (input.dtype, weight.dtype)
        and (input.dtype != torch.float16 or weight.dtype == torch.float32)
        and (None not in statistics or (statistics == (None, None) and training))
        and input.dim() >= 3
        and input.shape[0] <= most
        and input.numel() <= _MOST_ELEMENTS
    )
    if is_cudnn:
        order = torch._prims_common.suggest_memory_format(input)
        dense = input.contiguous(memory_format=order)
        out: Tensor = aten.cudnn_batch_norm(dense, weight, bias, *statistics, training, momentum, eps)[0]
        return out
    torch.empty(0, dtype=torch.uint8)
    out = aten.native_batch_norm(input, weight, bias, *statistics, training, momentum, eps)[0]
    return out


def rms_norm(
    gpu: Gpu,
    input: Tensor,  # noqa: A002
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Normalize by root mean square in one kernel, where weights are of the type of the input."""
    del gpu
    if weight is not None and weight.dtype != input.dtype:
        out: Tensor = composite(aten.rms_norm.default, input, normalized_shape, weight, eps)
        return out
    out = aten._fused_rms_norm(input, normalized_shape, weight, eps)[0]
    return out


def _widened(dtype: torch.dtype) -> torch.dtype:
    """Return the type of statistics."""
    return torch.float32 if dtype in HALVES else dtype


def _cudnn_batch_norm(  # noqa: PLR0913
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,  # noqa: FBT001
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    del bias, running_mean, running_var, momentum, eps
    count = weight.shape[0] if training else 0
    mean, deviation = (input.new_empty(count, dtype=weight.dtype) for _ in range(2))
    # cuDNN 9 keeps nothing beside the statistics unless an activation is fused to it, which PyTorch does not ask for.
    return torch.empty_like(input), mean, deviation, input.new_empty(0, dtype=torch.uint8)


def _cudnn_batch_norm_backward(input: Tensor, grad_output: Tensor, weight: Tensor, *_: object) -> tuple[Tensor, ...]:  # noqa: A002
    del grad_output
    return torch.empty_like(input), torch.empty_like(weight), torch.empty_like(weight)


def _native_batch_norm(input: Tensor, *_: object) -> tuple[Tensor, ...]:  # noqa: A002
    channels, kind = input.shape[1], _widened(input.dtype)
    return torch.empty_like(input), input.new_empty(channels, dtype=kind), input.new_empty(channels, dtype=kind)


def _native_layer_norm(input: Tensor, normalized_shape: list[int], *_: object) -> tuple[Tensor, ...]:  # noqa: A002
    of = [*input.shape[: -len(normalized_shape)], *(1 for _ in normalized_shape)]
    kind = _widened(input.dtype)
    out = torch.empty_like(input, memory_format=torch.contiguous_format)
    return out, input.new_empty(of, dtype=kind), input.new_empty(of, dtype=kind)


def _fused_rms_norm(input: Tensor, normalized_shape: list[int], *_: object) -> tuple[Tensor, Tensor]:  # noqa: A002
    of = [*input.shape[: -len(normalized_shape)], *(1 for _ in normalized_shape)]
    return torch.empty_like(input, memory_format=torch.contiguous_format), input.new_empty(of, dtype=_widened(input.dtype))


COMPOSITES: Composites = {aten.batch_norm.default: batch_norm, aten.rms_norm.default: rms_norm}
KERNELS: Kernels = {
    aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    aten.cudnn_batch_norm_backward.default: _cudnn_batch_norm_backward,
    aten.native_batch_norm.default: _native_batch_norm,
    aten.native_layer_norm.default: _native_layer_norm,
    aten._fused_rms_norm.default: _fused_rms_norm,
}
