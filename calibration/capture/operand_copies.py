"""Memory that kernels of CUDA allocate beside their results and free at once: copies of operands that lie otherwise.

No dispatcher sees them. Source, below `aten/src/ATen/native`: `Convolution.cpp` and `ConvUtils.h`
(`cudnn_conv_suggest_memory_format`), `cuda/layer_norm_kernel.cu`, `group_norm.cpp`, `cuda/SoftMax.cu`,
`cuda/DilatedMaxPool2d.cu`, `cuda/Embedding.cu`, `cuda/TensorTransformations.cu` (`roll`).
`tests/pretend/test_operand_copies.py` holds them against what PyTorch's kernels allocate on a pretended GPU. Workspaces
are costs of a machine (`vdnnsim.cost.pytorch_workspace`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format

from calibration.capture.schemas import arguments_of, name_of

_CHANNELS_LAST: Final = {4: torch.channels_last, 5: torch.channels_last_3d}


def copied_operands(
    func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[torch.Tensor, torch.memory_format]]:
    """Return the operands that the kernels of an operator copy, and the order of the copies."""
    rule = _RULES.get(name_of(func))
    if rule is None:
        return []
    names, order_of = rule
    given = arguments_of(func, args, kwargs)
    order = order_of(given)
    # Of several dimensions the first is rolled into a tensor of its own.
    rolls = len(given.get("dims", ())) > 1
    return [
        (each, order)
        for each in (given[name] for name in names)
        if isinstance(each, torch.Tensor) and (rolls or not each.is_contiguous(memory_format=order))
    ]


def temporary_bytes(func: OpOverload, args: tuple[Any, ...], copied: int) -> int:
    """Return the bytes of copies, and of dY Y, which the backward of a softmax computes first."""
    return copied + (_nbytes(args[0]) if name_of(func) == "_softmax_backward_data" else 0)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _contiguous(_given: Mapping[str, Any]) -> torch.memory_format:
    return torch.contiguous_format


def _of_convolution(given: Mapping[str, Any]) -> torch.memory_format:
    """Return the order in which cuDNN convolves: channels last if images or weights lie so."""
    images, weight = given["input"], given["weight"]
    last = _CHANNELS_LAST.get(weight.dim())
    is_double = torch.float64 in (images.dtype, weight.dtype)
    if last is None or is_double or last not in (suggest_memory_format(images), suggest_memory_format(weight)):
        return torch.contiguous_format
    return last


def _of_images(given: Mapping[str, Any]) -> torch.memory_format:
    return suggest_memory_format(given["self"])


_Rule = tuple[tuple[str, ...], Callable[[Mapping[str, Any]], torch.memory_format]]
_RULES: Final[Mapping[str, _Rule]] = {
    "convolution": (("input", "weight"), _of_convolution),
    # The copy of weights is freed before their gradient, which is as large, is made.
    "convolution_backward": (("grad_output", "input"), _of_convolution),
    "native_layer_norm": (("input",), _contiguous),
    "native_layer_norm_backward": (("grad_out", "input"), _contiguous),
    "native_group_norm": (("input",), _contiguous),
    "native_group_norm_backward": (("grad_out", "input"), _contiguous),
    "_softmax": (("self",), _contiguous),
    "_log_softmax": (("self",), _contiguous),
    "_log_softmax_backward_data": (("grad_output", "output"), _contiguous),
    "embedding_dense_backward": (("grad_output",), _contiguous),
    "max_pool2d_with_indices": (("self",), _of_images),
    "max_pool2d_with_indices_backward": (("grad_output", "self"), _of_images),
    "roll": (("self",), _contiguous),
}
"""By operator the operands that it copies, and the order in which its kernels need them."""
