"""Dropout, softmax, log-sigmoid and bags of embeddings.

Source: `aten/src/ATen/native/Dropout.cpp` (`is_fused_kernel_acceptable`), `native/SoftMax.cpp`,
`native/cuda/Activation.cpp` (`log_sigmoid_forward_out_cuda`), `native/cuda/EmbeddingBag.cu`.
"""

from typing import Final, cast

import torch

from calibration.capture.cuda.rules import Composites, Gpu, Kernels, Tensor, composite

aten = torch.ops.aten

_MAXIMUM: Final = 2
"""The mode of a bag of embeddings that remembers where it found its values."""


def dropout(gpu: Gpu, input: Tensor, p: float, train: bool) -> Tensor:
    """Drop in one kernel that keeps a mask of a byte for each element."""
    del gpu
    if train and 0 < p < 1 and input.numel():
        return cast("Tensor", aten.native_dropout(input, p, train)[0])
    return cast("Tensor", composite(aten.dropout.default, input, p, train))


def softmax(gpu: Gpu, input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Widen float16 within the kernel."""
    del gpu
    if input.dtype == torch.float16 and dtype == torch.float32:
        return cast("Tensor", aten._softmax(input, dim, True))
    return cast("Tensor", composite(aten.softmax.int, input, dim, dtype))


def log_softmax(gpu: Gpu, input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Widen float16 within the kernel."""
    del gpu
    if input.dtype == torch.float16 and dtype == torch.float32:
        return cast("Tensor", aten._log_softmax(input, dim, True))
    return cast("Tensor", composite(aten.log_softmax.int, input, dim, dtype))


def _widening_softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor | None:
    del dim
    return torch.empty_like(input, dtype=torch.float32) if half_to_float else None


def _softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor | None:
    del output, dim
    return torch.empty_like(grad_output, dtype=input_dtype) if grad_output.dtype != input_dtype else None


def _log_sigmoid_forward(input: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(input), input.new_empty(0)


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, ...]:
    del scale_grad_by_freq, sparse, per_sample_weights, padding_idx
    bags, width = offsets.shape[0] - include_last_offset, weight.shape[1]
    found = (bags, width) if mode == _MAXIMUM else (0,)
    return (
        weight.new_empty(bags, width),
        weight.new_empty(indices.shape[0], dtype=indices.dtype),
        weight.new_empty(bags, dtype=indices.dtype),
        weight.new_empty(found, dtype=indices.dtype),
    )


COMPOSITES: Composites = {
    aten.dropout.default: dropout,
    aten.softmax.int: softmax,
    aten.log_softmax.int: log_softmax,
}
KERNELS: Kernels = {
    aten._softmax.default: _widening_softmax,
    aten._log_softmax.default: _widening_softmax,
    aten._softmax_backward_data.default: _softmax_backward,
    aten._log_softmax_backward_data.default: _softmax_backward,
    aten.log_sigmoid_forward.default: _log_sigmoid_forward,
    aten._embedding_bag.default: _embedding_bag,
}
