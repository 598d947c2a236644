"""FLOPs and shapes of what multiplies: products of matrices, convolutions, attention, recurrent layers.

By the direct method, a multiply and an add being two.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vdnnsim.dnn.captured_step import ConvolutionWork, ProductWork

Given = Mapping[str, Any]
"""Arguments of an operator, by name."""


def product_work(left: torch.Tensor, right: torch.Tensor) -> ProductWork:
    """Return the shape of a product of matrices, or of several."""
    *batch, m, k = left.shape
    return ProductWork(batch=math.prod(batch), m=m, n=right.shape[-1], k=k)


def convolution_work(given: Given) -> tuple[int, ConvolutionWork]:
    """Return the FLOPs and the shape of a convolution, or of its backward, which has an `output_mask`."""
    images, weight = given["input"], given["weight"]
    batch_size, _, *input_size = images.shape
    dimensions = len(input_size)
    kernel = tuple(weight.shape[2:])
    transposed, groups = bool(given["transposed"]), int(given["groups"])
    stride, padding, dilation = (_by_dimension(given[key], dimensions) for key in ("stride", "padding", "dilation"))
    sizes = zip(input_size, kernel, stride, padding, dilation, strict=True)
    # Of the places where the kernel is laid down, in the smaller map of the two.
    places = (
        input_size
        if transposed
        else [(size + 2 * pad - gap * (width - 1) - 1) // step + 1 for size, width, step, pad, gap in sizes]
    )
    mask = given.get("output_mask")
    computes = tuple(name for name, wanted in zip(("input", "weight", "bias"), mask or (), strict=False) if wanted)
    work = ConvolutionWork(
        batch_size=batch_size,
        input_channels=images.shape[1],
        output_channels=weight.shape[1] * groups if transposed else weight.shape[0],
        input_size=tuple(input_size),
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        transposed=transposed,
        bias="bias" in computes if mask else given.get("bias") is not None,
        channels_last=_is_channels_last(images) or _is_channels_last(weight),
        computes=computes,
    )
    # At each place each weight is a factor once for each image; backward has a product for dX and one for dW.
    products = len({"input", "weight"} & set(computes)) if mask else 1
    return 2 * products * batch_size * math.prod(places) * weight.numel(), work


def attention_flop(given: Given, *, is_backward: bool) -> int:
    """Return the FLOPs of fused attention: of Q K and P V, or in backward of Q K again, dV, dP, dQ and dK.

    Products with scores that causal attention leaves out are left out.
    """
    query, key, value = given["query"], given["key"], given["value"]
    *batch, steps, width = query.shape
    others = key.shape[-2]
    pairs = steps * others
    if given.get("is_causal"):
        # The first step attends to the first; PyTorch aligns the mask at the upper left.
        seen = min(steps, others)
        pairs = seen * (seen + 1) // 2 + max(steps - others, 0) * others
    wide, narrow = (3, 2) if is_backward else (1, 1)
    return int(2 * math.prod(batch) * pairs * (wide * width + narrow * value.shape[-1]))


def recurrent_flop(weights: Sequence[torch.Tensor], steps: int, *, is_backward: bool) -> int:
    """Return the FLOPs of the products of recurrent layers.

    Args:
        weights: all of them, of which matrices are factors.
        steps: of all samples.
        is_backward: whether it is of their backward, which has one product for dX and one for dW.
    """
    elements = sum(each.numel() for each in weights if each.dim() > 1)
    return (4 if is_backward else 2) * steps * elements


def _is_channels_last(tensor: torch.Tensor) -> bool:
    order = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return order is not None and tensor.is_contiguous(memory_format=order) and not tensor.is_contiguous()


def _by_dimension(value: Sequence[int], dimensions: int) -> tuple[int, ...]:
    """Return a number for each dimension, where PyTorch takes one for all."""
    return tuple(value) if len(value) == dimensions else tuple(value) * dimensions
