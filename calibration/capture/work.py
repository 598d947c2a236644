"""What an operation computes: FLOPs by the direct method, and the shapes that a cost model knows."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from calibration.capture.schemas import arguments_of, tensors_in
from vdnnsim.dnn.captured_step import ConvolutionWork, ProductWork
from vdnnsim.dnn.operator import Arithmetic


@dataclass(frozen=True)
class Effort:
    """FLOPs by kind of arithmetic, the shape of the work, and whether the FLOPs follow from a rule."""

    flop: Mapping[Arithmetic, int] = field(default_factory=dict)
    work: ConvolutionWork | ProductWork | None = None
    known: bool = True


def effort_of(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Effort:
    """Return what an operation computes."""
    name = func._schema.name.removeprefix("aten::")  # noqa: SLF001 - PyTorch has no public one
    given = arguments_of(func, args, kwargs)
    if name in _PRODUCTS:
        return _product(given, *_PRODUCTS[name])
    if name in ("convolution", "convolution_backward", "cudnn_convolution", "_convolution"):
        return _convolution(given, is_backward=name == "convolution_backward")
    if name in _MOVES:
        return Effort()
    if name in _REDUCTIONS or torch.Tag.pointwise in func.tags or torch.Tag.reduction in func.tags:
        return _elementwise(args, kwargs, result, passes=_PASSES.get(name, 1))
    if name in _PASSES:
        return _elementwise(args, kwargs, result, passes=_PASSES[name])
    if func.overloadpacket in flop_registry:
        flop = int(flop_registry[func.overloadpacket](*args, **kwargs, out_val=result))
        return Effort({Arithmetic.PRODUCT: flop} if flop else {}, known="attention" in name)
    return Effort(known=False)


_PRODUCTS: Final = {
    "mm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "bmm": ("self", "mat2"),
    "baddbmm": ("batch1", "batch2"),
}
"""The factors of a product of matrices, by the names of arguments."""

_MOVES: Final = frozenset(
    [
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "zeros",
        "ones",
        "full",
        "zeros_like",
        "ones_like",
        "full_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "arange",
        "copy_",
        "clone",
        "_to_copy",
        "fill_",
        "zero_",
        "cat",
        "stack",
        "index_select",
        "gather",
        "embedding",
        "constant_pad_nd",
        "repeat",
        "_foreach_copy_",
        "_foreach_zero_",
        "_unsafe_view",
        "triu",
        "tril",
        "roll",
        "flip",
        "lift_fresh",
        "scalar_tensor",
        "eye",
    ]
)
_REDUCTIONS: Final = frozenset({"sum", "mean", "var_mean", "amax", "amin", "max", "argmax", "cumsum", "norm"})

_PASSES: Final[Mapping[str, int]] = {}


def _product(given: Mapping[str, Any], left: str, right: str) -> Effort:
    *batch, m, k = given[left].shape
    n = given[right].shape[-1]
    count = math.prod(batch)
    flop = {Arithmetic.PRODUCT: 2 * count * m * n * k}
    return Effort(flop, ProductWork(batch=count, m=m, n=n, k=k))


def _convolution(given: Mapping[str, Any], *, is_backward: bool) -> Effort:
    images = given["input"]
    weight = given["weight"]
    transposed, groups = bool(given["transposed"]), int(given["groups"])
    batch_size, channels, *input_size = images.shape
    dimensions = len(input_size)
    kernel = tuple(weight.shape[2:])
    stride, padding, dilation = (_each(given[key], dimensions) for key in ("stride", "padding", "dilation"))
    if transposed:
        steps = math.prod(input_size)
        output_channels = weight.shape[1] * groups
    else:
        steps = math.prod(
            (size + 2 * pad - spread * (width - 1) - 1) // step + 1
            for size, width, step, pad, spread in zip(input_size, kernel, stride, padding, dilation, strict=True)
        )
        output_channels = weight.shape[0]
    # Each position of the smaller map meets each weight of its group once for each image.
    single = 2 * batch_size * steps * weight.numel()
    computes: tuple[str, ...] = ()
    if is_backward:
        wanted = zip(("input", "weight", "bias"), given["output_mask"], strict=True)
        computes = tuple(name for name, is_wanted in wanted if is_wanted)
    products = len(set(computes) & {"input", "weight"}) if is_backward else 1
    work = ConvolutionWork(
        batch_size=batch_size,
        input_channels=channels,
        output_channels=output_channels,
        input_size=tuple(input_size),
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        transposed=transposed,
        bias="bias" in computes if is_backward else given.get("bias") is not None,
        channels_last=dimensions >= 2 and _is_channels_last(images, dimensions),
        computes=computes,
    )
    return Effort({Arithmetic.PRODUCT: products * single}, work)


def _is_channels_last(images: torch.Tensor, dimensions: int) -> bool:
    order = torch.channels_last if dimensions == 2 else torch.channels_last_3d
    return images.is_contiguous(memory_format=order) and not images.is_contiguous()


def _each(value: list[int], dimensions: int) -> tuple[int, ...]:
    """Return one number for each dimension, of which PyTorch takes one for all."""
    return tuple(value) if len(value) == dimensions else tuple(value) * dimensions


def _elementwise(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object, passes: int) -> Effort:
    """One FLOP for each element of the largest operand, that of a result or, for a sum, of what is summed."""
    sizes = [each.numel() for each in (*tensors_in((args, kwargs)), *tensors_in(result))]
    flop = passes * max(sizes, default=0)
    return Effort({Arithmetic.ELEMENTWISE: flop} if flop else {})


_Rule = Callable[..., Effort]
