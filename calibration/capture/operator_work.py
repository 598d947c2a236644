"""FLOPs, bytes moved, work and arithmetic type of an operator.

FLOPs are of the direct method, a multiply-add being two. Each operand is read once and each result written once, but
for operands whose sums are needed first, as of batch normalization in training, which are read twice.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from calibration.capture.cuda.recurrent import recurrent_work
from calibration.capture.schemas import arguments_of, name_of, only_writes, operands_of, tensors_in
from calibration.capture.storages import element_type_of
from vdnnsim.dnn.kernel_work import ConvolutionWork, ProductWork, RecurrentWork
from vdnnsim.dnn.operator import Arithmetic

_Given = Mapping[str, Any]
"""Arguments of an operator, by name."""
_ALLOCATING: Final = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted"}
_LOOKUPS: Final = {"embedding", "index_select", "gather", "index"}
"""Operators that read as much of their first operand as they return."""
_READS_A_CLASS: Final = {
    "nll_loss_forward": 0,
    "nll_loss_backward": 1,
    "nll_loss2d_forward": 0,
    "nll_loss2d_backward": 1,
}
"""The position of the operand of which one class in each row is read at most."""
_SUMS_FIRST: Final = {
    "native_batch_norm": 1,
    "_native_batch_norm_legit": 1,
    "_batch_norm_with_update": 1,
    "cudnn_batch_norm": 1,
    "native_group_norm": 1,
    "native_group_norm_backward": 2,
    "native_batch_norm_backward": 2,
    "batch_norm_backward": 2,
    "cudnn_batch_norm_backward": 2,
}
"""How many operands are read twice: X, and in backward dY."""


@dataclass(frozen=True)
class Effort:
    """FLOPs by kind of arithmetic, the work, and whether a rule gives the FLOPs."""

    flop: Mapping[Arithmetic, int] = field(default_factory=dict)
    work: ConvolutionWork | ProductWork | RecurrentWork | None = None
    known: bool = True


def effort_of(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Effort:
    name, given = name_of(func), arguments_of(func, args, kwargs)
    if name in _FACTORS:
        left, right = (given[each] for each in _FACTORS[name])
        work = _product_work(left, right)
        return Effort({Arithmetic.PRODUCT: work.flop}, work)
    if name in ("convolution", "convolution_backward"):
        shape = _convolution_work(given)
        return Effort({Arithmetic.PRODUCT: shape.flop}, shape)
    if name in ("_cudnn_rnn", "_cudnn_rnn_backward"):
        layers = recurrent_work(given, is_backward=name.endswith("_backward"))
        flop = _recurrent_flop(given["weight"], layers.rows, is_backward=layers.is_backward)
        return Effort({Arithmetic.PRODUCT: flop}, layers)
    product = _other_product(name, given)
    if product is not None:
        return Effort({Arithmetic.PRODUCT: product})
    if name in _MOVES or name.startswith(("new_", "empty")):
        return Effort()
    tensors = [*tensors_in((args, kwargs)), *tensors_in(result)]
    if name.startswith(("_foreach", "_fused_adam", "_fused_sgd", "_amp_foreach")):
        # Elements of the longest list.
        lists = [value for value in (*given.values(), result) if isinstance(value, list | tuple)]
        elements = max((sum(each.numel() for each in tensors_in(value)) for value in lists), default=0)
        return _elementwise(elements * _FLOP_PER_ELEMENT.get(name, 1))
    elements = max((each.numel() for each in tensors), default=0)
    if name in _POOLINGS:
        smaller = min(each.numel() for each in tensors if each.is_floating_point())
        return _elementwise(smaller * _pool_elements(given, elements // max(smaller, 1)))
    if name in _FLOP_PER_ELEMENT:
        return _elementwise(elements * _FLOP_PER_ELEMENT[name])
    if torch.Tag.pointwise in func.tags or name in _ONCE:
        return _elementwise(elements)
    if func.overloadpacket in flop_registry:
        counted = int(flop_registry[func.overloadpacket](*args, **kwargs, out_val=result))
        return Effort({Arithmetic.PRODUCT: counted} if counted else {}, known=False)
    return Effort(known=False)


_FACTORS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "mm": ("self", "mat2"),
        "addmm": ("mat1", "mat2"),
        "_addmm_activation": ("mat1", "mat2"),
        "bmm": ("self", "mat2"),
        "baddbmm": ("batch1", "batch2"),
    }
)
"""The factors of a product of matrices, by the names of arguments."""

_MOVES: Final = frozenset(
    """
    zeros zeros_like ones ones_like full full_like fill_ fill zero_ zero _foreach_zero_ arange linspace eye
    scalar_tensor copy_ copy clone _to_copy _foreach_copy_ lift_fresh cat stack repeat roll flip tril triu
    _unsafe_view index_select index gather embedding index_put index_put_ _index_put_impl_ masked_fill_
    sort topk argsort im2col slice_backward select_backward diagonal_backward slice_scatter select_scatter
    unfold_backward constant_pad_nd reflection_pad1d reflection_pad2d replication_pad2d pixel_shuffle pixel_unshuffle
    channel_shuffle resize_ set_ upsample_nearest2d upsample_nearest2d_backward max_pool2d_with_indices_backward
    split_with_sizes_copy chunk_cat
    bernoulli_ bernoulli rand rand_like randn randn_like randint randperm uniform_ normal_ random_ multinomial
    """.split()
)
"""Operators without FLOPs."""

_ONCE: Final = frozenset(
    """
    sum mean amax amin max min argmax argmin prod any all cumsum cumprod norm linalg_vector_norm
    embedding_dense_backward scatter_add scatter_add_ index_add index_add_ native_dropout native_dropout_backward
    nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward _masked_scale _amp_update_scale_
    elu_backward softplus_backward leaky_relu_backward hardsigmoid_backward hardtanh_backward mish_backward glu_backward
    mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward
    log_sigmoid_backward binary_cross_entropy binary_cross_entropy_backward hardswish hardswish_backward
    binary_cross_entropy_with_logits
    """.split()
)
"""One FLOP for each element of the largest operand."""

_FLOP_PER_ELEMENT: Final[Mapping[str, int]] = MappingProxyType(
    {
        # Two for the mean, three for the variance and the scaling; those of `vdnnsim.dnn`.
        **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"), 5),
        **dict.fromkeys(("_batch_norm_with_update", "native_layer_norm", "native_group_norm"), 5),
        **dict.fromkeys(("native_batch_norm_backward", "cudnn_batch_norm_backward", "batch_norm_backward"), 7),
        **dict.fromkeys(("native_layer_norm_backward", "native_group_norm_backward"), 10),
        "_fused_rms_norm": 4,
        "_fused_rms_norm_backward": 8,
        # Maximum, difference, exponential, sum, quotient.
        **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax"), 5),
        "logsumexp": 4,
        **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), 4),
        **dict.fromkeys(("var_mean", "var", "std", "std_mean"), 3),
        **dict.fromkeys(("addcmul", "addcmul_", "addcdiv", "addcdiv_", "lerp", "lerp_"), 3),
        **dict.fromkeys(("_foreach_addcmul_", "_foreach_addcdiv_", "_foreach_lerp_"), 3),
        **dict.fromkeys(("_fused_sgd_",), 4),
        # Two moments, root and quotient, as `vdnnsim.dnn.workload.Optimizer`.
        **dict.fromkeys(("_fused_adam_", "_fused_adamw_", "fused_adam_32bit"), 12),
        # Each of two states is scaled, and found by bisection in a table of 256 values.
        "fused_adam_8bit": 12 + 2 * (1 + 1 + 8),
        **dict.fromkeys(("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"), 10),
        **dict.fromkeys(("upsample_bilinear2d", "upsample_bilinear2d_backward", "grid_sampler_2d"), 7),
    }
)
"""For each element of the largest operand."""

_POOLINGS: Final = frozenset(
    """
    max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d avg_pool2d_backward avg_pool3d_backward
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward adaptive_max_pool2d
    """.split()
)


def _other_product(name: str, given: _Given) -> int | None:
    """Return the FLOPs of attention, recurrent layers of a CPU and products with vectors; None for others."""
    is_backward = name.endswith("_backward")
    if name.startswith("_scaled_dot_product") and "query" in given:
        return _attention_flop(given, is_backward=is_backward)
    if name == "mkldnn_rnn_layer":
        weights = [given[f"weight{number}"] for number in range(4)]
        return _recurrent_flop(weights, math.prod(given["input"].shape[:-1]), is_backward=False)
    if name == "dot":
        return 2 * int(given["self"].numel())
    if name in ("mv", "addmv"):
        return 2 * int(given["mat" if name == "addmv" else "self"].numel())
    return None


def _pool_elements(given: _Given, ratio: int) -> int:
    """Return the elements that a pooling reduces: of its kernel, or of its input for each of its output."""
    kernel = given.get("kernel_size")
    return math.prod(kernel) if kernel and len(kernel) > 1 else max(ratio, 1)


def _elementwise(flop: int) -> Effort:
    return Effort({Arithmetic.ELEMENTWISE: flop} if flop else {})


def _product_work(left: torch.Tensor, right: torch.Tensor) -> ProductWork:
    *batch, m, k = left.shape
    return ProductWork(batch=math.prod(batch), m=m, n=right.shape[-1], k=k)


def _convolution_work(given: _Given) -> ConvolutionWork:
    """Return the shape of a convolution, or of its backward, which has an `output_mask`."""
    images, weight = given["input"], given["weight"]
    batch_size, _, *input_size = images.shape
    dimensions = len(input_size)
    kernel = tuple(weight.shape[2:])
    transposed, groups = bool(given["transposed"]), int(given["groups"])
    stride, padding, dilation = (_by_dimension(given[key], dimensions) for key in ("stride", "padding", "dilation"))
    mask = given.get("output_mask")
    computes = tuple(name for name, wanted in zip(("input", "weight", "bias"), mask or (), strict=False) if wanted)
    return ConvolutionWork(
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


def _attention_flop(given: _Given, *, is_backward: bool) -> int:
    """Return the FLOPs of attention without causally masked ones: Q K, P V; in backward Q K, dV, dP, dQ, dK."""
    query, key, value = given["query"], given["key"], given["value"]
    *batch, steps, width = query.shape
    others = key.shape[-2]
    pairs = steps * others
    if given.get("is_causal"):
        # PyTorch aligns the mask at the upper left.
        seen = min(steps, others)
        pairs = seen * (seen + 1) // 2 + max(steps - others, 0) * others
    wide, narrow = (3, 2) if is_backward else (1, 1)
    return int(2 * math.prod(batch) * pairs * (wide * width + narrow * value.shape[-1]))


def _recurrent_flop(weights: Sequence[torch.Tensor], steps: int, *, is_backward: bool) -> int:
    """Return the FLOPs over the steps of all samples; backward has products for dX and dW."""
    elements = sum(each.numel() for each in weights if each.dim() > 1)
    return (4 if is_backward else 2) * steps * elements


def _is_channels_last(tensor: torch.Tensor) -> bool:
    order = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return order is not None and tensor.is_contiguous(memory_format=order) and not tensor.is_contiguous()


def _by_dimension(value: Sequence[int], dimensions: int) -> tuple[int, ...]:
    return tuple(value) if len(value) == dimensions else tuple(value) * dimensions


def traffic_of(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> int:
    """Return the bytes that an operation moves; 0 where it only allocates."""
    name = name_of(func)
    if name in _ALLOCATING:
        return 0
    given = list(operands_of(func, args, kwargs))
    known = {tensor.untyped_storage()._cdata for tensor, _ in given}  # noqa: SLF001 - its identity
    results = [each for each in tensors_in(result) if each.untyped_storage()._cdata not in known]  # noqa: SLF001
    total = sum(map(_distinct_bytes, results))
    arguments = arguments_of(func, args, kwargs)
    summed = _SUMS_FIRST.get(name, 0) if arguments.get("training", arguments.get("train", True)) else 0
    for position, (tensor, is_written) in enumerate(given):
        size = _distinct_bytes(tensor)
        if name in _LOOKUPS and position == 0:
            size = min(size, sum(map(_distinct_bytes, results)))
        if _READS_A_CLASS.get(name) == position:
            size //= tensor.shape[min(1, tensor.dim() - 1)]
        total += size * 2 if position < summed or (is_written and not only_writes(func)) else size
    return total


def _distinct_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor without repetition along expanded dimensions."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size)
    return math.prod(sizes) * tensor.element_size()


def arithmetic_type(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> str:
    """Return the widest floating type of the operands, else the first type.

    Fused attention multiplies in the type of its first operand; the logarithms of its sums are in float32.
    """
    tensors = [*tensors_in((args, kwargs)), *tensors_in(result)]
    floating = [each for each in tensors if each.is_floating_point()]
    if floating and name_of(func).startswith("_scaled_dot_product"):
        return element_type_of(floating[0])
    return widest_type(tensors)


def widest_type(tensors: Sequence[torch.Tensor]) -> str:
    """Return the widest floating type of tensors, else the type of the first."""
    floating = [each for each in tensors if each.is_floating_point()]
    return element_type_of(max(floating, key=torch.Tensor.element_size) if floating else tensors[0])
