"""Autograd functions for kernels of CUDA alone: saved tensors and shapes of gradients, without computation."""
# ruff: noqa: ANN401 - torch does not say what the context of a function has

from typing import Any

import torch

Tensors = tuple[torch.Tensor, ...]


class FusedRmsNorm(torch.autograd.Function):
    """aten::_fused_rms_norm, which elsewhere is taken apart."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, gamma, x.new_empty((*x.shape[:-1], 1), dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Tensors:
        x, gamma, *_ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(gamma)


class HalfBatchNorm(torch.autograd.Function):
    """aten::native_batch_norm of a half X; its moments are in float32, unlike those of the kernel for no storage."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        *running, gamma, _ = weights
        ctx.save_for_backward(x, gamma, *running, torch.empty_like(gamma), torch.empty_like(gamma))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        x, gamma, *_ = ctx.saved_tensors
        return torch.empty_like(x), None, None, torch.empty_like(gamma), torch.empty_like(gamma)


class CudnnLstm(torch.autograd.Function):
    """aten::_cudnn_rnn, with the reserve of `vdnnsim.dnn.sequences.Lstm`; that of cuDNN is not documented."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, *weights: torch.Tensor) -> Any:
        y = x.new_empty(*x.shape[:-1], cell.shape[-1])
        ctx.save_for_backward(x, hidden, cell, y, y.new_empty(5, *y.shape), *weights)
        return y

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        x, _, _, _, _, *weights = ctx.saved_tensors
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        return dx, None, None, *(torch.empty_like(each) for each in weights)
