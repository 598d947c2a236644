"""Normalizations by cuDNN or PyTorch's kernels, and the types of their statistics.

Source: `aten/src/ATen/native/Normalization.cpp` (`_select_batch_norm_backend`), `native/cudnn/BatchNorm.cpp`,
`native/cuda/Normalization.cu`, `native/cuda/layer_norm_kernel.cu`, `native/layer_norm.cpp` (`rms_norm`).
"""

from typing import Any, Final, cast

import torch

from calibration.capture.cuda.rules import HALVES, Composites, Given, Gpu, Kernels, Tensor, composite

aten = torch.ops.aten

_MOST_TRAINING_BATCH: Final = 880801
_MOST_EVALUATION_BATCH: Final = 65535
_MOST_ELEMENTS: Final = 2**31 - 1
"""Limit of cuDNN's batch normalization, by 32-bit indices."""


def batch_norm(
    gpu: Gpu,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
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
        return cast("Tensor", aten.cudnn_batch_norm(dense, weight, bias, *statistics, training, momentum, eps)[0])
    torch.empty(0, dtype=torch.uint8)
    return cast("Tensor", aten.native_batch_norm(input, weight, bias, *statistics, training, momentum, eps)[0])


class _FusedRmsNorm(torch.autograd.Function):
    """The fused kernel, which has a backward on CUDA alone."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            out, deviation = aten._fused_rms_norm(input, shape, weight, eps)
        # Operands before results, as autograd saves those of an operator.
        ctx.save_for_backward(input, *([] if weight is None else [weight]), deviation)
        ctx.shape = shape
        return cast("Tensor", out)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        input, *rest, deviation = ctx.saved_tensors
        weight = rest[0] if rest else None
        mask = [ctx.needs_input_grad[0], ctx.needs_input_grad[2]]
        of_input, of_weight = aten._fused_rms_norm_backward(gradient, input, ctx.shape, deviation, weight, mask)
        return of_input, None, of_weight, None


def rms_norm(
    gpu: Gpu,
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Normalize by root mean square, fused where possible."""
    del gpu
    is_plain = torch._prims_common.suggest_memory_format(input) is torch.contiguous_format
    if is_plain and not input.is_complex() and (weight is None or weight.dtype == input.dtype):
        return cast("Tensor", _FusedRmsNorm.apply(input, normalized_shape, weight, eps))  # type: ignore[no-untyped-call]
    return cast("Tensor", composite(aten.rms_norm.default, input, normalized_shape, weight, eps))


def _cudnn_batch_norm(given: Given) -> tuple[Tensor, ...]:
    input, weight = given["input"], given["weight"]
    count = weight.shape[0] if given["training"] else 0
    mean, deviation = (input.new_empty(count, dtype=weight.dtype) for _ in range(2))
    # cuDNN 9 has a reserve only with a fused activation, which PyTorch does not use.
    return torch.empty_like(input), mean, deviation, input.new_empty(0, dtype=torch.uint8)


def _cudnn_batch_norm_backward(given: Given) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(given[name]) for name in ("input", "weight", "weight"))


def _native_batch_norm(given: Given) -> tuple[Tensor, ...]:
    input = given["input"]
    return torch.empty_like(input), *(_statistics(input, [input.shape[1]]) for _ in range(2))


def _native_layer_norm(given: Given) -> tuple[Tensor, ...]:
    out, mean = _fused_rms_norm(given)
    return out, mean, torch.empty_like(mean)


def _fused_rms_norm(given: Given) -> tuple[Tensor, Tensor]:
    input, normalized = given["input"], len(given["normalized_shape"])
    of = [*input.shape[:-normalized], *[1] * normalized]
    return torch.empty_like(input, memory_format=torch.contiguous_format), _statistics(input, of)


def _fused_rms_norm_backward(given: Given) -> tuple[Tensor | None, ...]:
    wanted = zip(("input", "weight"), given["output_mask"], strict=True)
    return tuple(
        torch.empty_like(given[name]) if is_wanted and given[name] is not None else None for name, is_wanted in wanted
    )


def _statistics(input: Tensor, shape: list[int]) -> Tensor:
    """Return empty statistics of an input, in 32 bits at least."""
    return input.new_empty(shape, dtype=torch.float32 if input.dtype in HALVES else input.dtype)


COMPOSITES: Composites = {aten.batch_norm.default: batch_norm, aten.rms_norm.default: rms_norm}
KERNELS: Kernels = {
    aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    aten.cudnn_batch_norm_backward.default: _cudnn_batch_norm_backward,
    aten.native_batch_norm.default: _native_batch_norm,
    aten.native_layer_norm.default: _native_layer_norm,
    aten._fused_rms_norm.default: _fused_rms_norm,
    aten._fused_rms_norm_backward.default: _fused_rms_norm_backward,
}
