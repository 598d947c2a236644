"""Dropout, softmax, log-sigmoid, classes and bags of embeddings.

Source: `aten/src/ATen/native/Dropout.cpp` (`is_fused_kernel_acceptable`), `native/SoftMax.cpp`,
`native/cuda/Activation.cpp` (`log_sigmoid_forward_out_cuda`), `native/cuda/EmbeddingBag.cu`.
"""

from typing import Final, cast

import torch
from torch._ops import OpOverload

from calibration.capture.cuda.rules import Composite, Composites, Given, Gpu, Kernels, Tensor, composite
from calibration.capture.schemas import OperatorMode

aten = torch.ops.aten

_MAXIMUM: Final = 2
"""The mode of an embedding bag that returns indices of maxima."""


def dropout(gpu: Gpu, input: Tensor, p: float, train: bool) -> Tensor:
    """Drop in one kernel with a mask of a byte for each element."""
    del gpu
    if train and 0 < p < 1 and input.numel():
        return cast("Tensor", aten.native_dropout(input, p, train)[0])
    return cast("Tensor", composite(aten.dropout.default, input, p, train))


def _softmax(whole: OpOverload, kernel: OpOverload) -> Composite:
    """Return the rule of a softmax whose kernel converts float16 to float32."""

    def rule(gpu: Gpu, input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
        del gpu
        if input.dtype == torch.float16 and dtype == torch.float32:
            return cast("Tensor", kernel(input, dim, True))
        return cast("Tensor", composite(whole, input, dim, dtype))

    return rule


def _softmax_kernel(given: Given) -> Tensor:
    # Its result is contiguous, whatever its operand is.
    x = given["self"]
    return torch.empty(x.shape, dtype=torch.float32 if given["half_to_float"] else x.dtype, device=x.device)


def _softmax_backward(given: Given) -> Tensor:
    gradient = given["grad_output"]
    return torch.empty(gradient.shape, dtype=given["input_dtype"], device=gradient.device)


def _log_sigmoid_forward(given: Given) -> tuple[Tensor, Tensor]:
    return torch.empty_like(given["self"]), given["self"].new_empty(0)


def _embedding_bag(given: Given) -> tuple[Tensor, ...]:
    weight, indices = given["weight"], given["indices"]
    bags, width = given["offsets"].shape[0] - given["include_last_offset"], weight.shape[1]
    found = (bags, width) if given["mode"] == _MAXIMUM else (0,)
    numbers = (weight.new_empty(size, dtype=indices.dtype) for size in (indices.shape[0], bags, found))
    return weight.new_empty(bags, width), *numbers


def _one_hot(gpu: Gpu, indices: Tensor, num_classes: int = -1) -> Tensor:
    """Scatter ones, as kernels do; of fake tensors, as of torch.compile, all are compared (`native/Onehot.cpp`)."""
    del gpu
    if OperatorMode.is_compiled:
        return cast("Tensor", composite(aten.one_hot.default, indices, num_classes))
    classes = int(indices.max()) + 1 if num_classes < 0 else num_classes
    result = torch.zeros(*indices.shape, classes, dtype=torch.long, device=indices.device)
    return result.scatter_(-1, indices.unsqueeze(-1), 1)


COMPOSITES: Composites = {
    aten.one_hot.default: _one_hot,
    aten.dropout.default: dropout,
    aten.softmax.int: _softmax(aten.softmax.int, aten._softmax.default),
    aten.log_softmax.int: _softmax(aten.log_softmax.int, aten._log_softmax.default),
}
KERNELS: Kernels = {
    aten._softmax.default: _softmax_kernel,
    aten._log_softmax.default: _softmax_kernel,
    aten._softmax_backward_data.default: _softmax_backward,
    aten._log_softmax_backward_data.default: _softmax_backward,
    aten.log_sigmoid_forward.default: _log_sigmoid_forward,
    aten._embedding_bag.default: _embedding_bag,
}
