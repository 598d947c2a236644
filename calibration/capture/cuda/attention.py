"""Attention: the choice of one of four backends, and its arguments.

Source: `aten/src/ATen/native/transformers/cuda/sdp_utils.cpp` (the choice), `transformers/attention.cpp` (padding and
masks), `transformers/sdp_utils_cpp.h` (conditions of all fused ones).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from calibration.capture.cuda.rules import HALVES, Composites, Gpu, Tensor, is_wanted, torch_version

aten = torch.ops.aten

_FUSED: Final = ((5, 0), (12, 1))
"""Compute capabilities of memory efficient attention; those of flash and cuDNN begin with 8.0."""
_MOST_CUDNN_ROWS: Final = 65535
_MOST_CUDNN_HEAD: Final = 128
_CUDNN_DROPOUT_STEPS: Final = 16


@dataclass(frozen=True)
class _Attention:
    """Arguments of one call."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout: float
    is_causal: bool
    grouped: bool

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value


def scaled_dot_product_attention(
    gpu: Gpu,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Dispatch as `at::native::scaled_dot_product_attention` does on a GPU; arguments are those of PyTorch's."""
    tensors, mask = (query, key, value), attn_mask
    gpu.largest_head = max(gpu.largest_head, query.shape[-1], value.shape[-1])
    # PyTorch 2.14 adds the batch dimension that fused attention needs.
    is_unbatched = torch_version() >= (2, 14) and all(each.dim() == 3 for each in tensors)
    if is_unbatched:
        tensors = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        while mask is not None and mask.dim() < 4:
            mask = mask.unsqueeze(0)
    call = _Attention(*tensors, mask, dropout_p, is_causal, enable_gqa)
    attend = _choose(gpu, call)
    if attend is not None:
        found = attend(call, scale)
        return found.squeeze(0) if is_unbatched else found
    out: Tensor = aten._scaled_dot_product_attention_math(
        query,
        key,
        value,
        _added(attn_mask, query.dtype),
        dropout_p,
        is_causal,
        None,
        scale=scale,
        enable_gqa=enable_gqa,
    )[0]
    return out


def _choose(gpu: Gpu, call: _Attention) -> "_Attend | None":
    """Return the fused backend, None for the composed one."""
    if not _is_fusible(call):
        return None
    # From cuDNN 9.15.1 on, PyTorch asks cuDNN first on Hopper and datacenter Blackwell.
    order: list[tuple[_Takes, _Attend]] = [(_takes_flash, _flash), (_takes_efficient, _efficient)]
    if gpu.major in (9, 10):
        order.insert(0, (_takes_cudnn, _cudnn))
    return next((attend for takes, attend in order if takes(gpu, call)), None)


def _is_fusible(call: _Attention) -> bool:
    query, key, value = call.tensors
    if not (query.dim() == key.dim() == value.dim() == 4) or not (query.shape[0] == key.shape[0] == value.shape[0]):
        return False
    return 0 not in (query.shape[-2], key.shape[-2])


def _heads_fit(call: _Attention, *, same_of_key_and_value: bool = True) -> bool:
    """Return whether a fused backend supports the numbers of heads."""
    heads, of_key, of_value = (each.shape[1] for each in call.tensors)
    if torch_version() >= (2, 14) and of_key == of_value == 1:
        return True
    if not call.grouped:
        return heads == of_key == of_value
    if same_of_key_and_value and of_key != of_value:
        return False
    return heads % of_key == 0 and heads % of_value == 0


def _is_dense(call: _Attention, *, single_counts: bool) -> bool:
    """Return whether the last dimension has stride 1."""
    dense = all(each.stride(-1) == 1 for each in call.tensors) or (single_counts and call.query.shape[-1] == 1)
    return dense and (call.mask is None or call.mask.stride(-1) == 1)


def _is_narrow(gpu: Gpu, call: _Attention) -> bool:
    narrow = HALVES if gpu.major >= 8 else (torch.float16,)
    return call.query.dtype in narrow and all(each.dtype == call.query.dtype for each in call.tensors)


def _takes_flash(gpu: Gpu, call: _Attention) -> bool:
    query, key, value = call.tensors
    size = query.shape[-1]
    if not torch._C._get_flash_sdp_enabled() or call.mask is not None or not (8, 0) <= gpu.capability <= _FUSED[1]:
        return False
    if not (size == key.shape[-1] == value.shape[-1]) or size > 256 or not _is_narrow(gpu, call):
        return False
    if call.is_causal and query.shape[-2] != key.shape[-2]:
        return False
    # They have too little shared memory for backward.
    is_small = (8, 6) <= gpu.capability <= (8, 9) or (12, 0) <= gpu.capability <= (12, 1)
    if is_small and is_wanted(call.tensors) and size > 192 and (call.dropout > 0 or size <= 224):
        return False
    return _heads_fit(call) and _is_dense(call, single_counts=True)


def _takes_efficient(gpu: Gpu, call: _Attention) -> bool:
    query, key, value = call.tensors
    if not torch._C._get_mem_efficient_sdp_enabled() or not _FUSED[0] <= gpu.capability <= _FUSED[1]:
        return False
    kinds = (torch.float16, torch.float32, torch.bfloat16) if gpu.major >= 8 else (torch.float16, torch.float32)
    if query.dtype not in kinds or any(each.dtype != query.dtype for each in call.tensors):
        return False
    alignment = _alignment(gpu, query.dtype)
    if query.shape[-1] != key.shape[-1] or query.shape[-1] % alignment or value.shape[-1] % alignment:
        return False
    if 0 in (query.shape[-1], value.shape[-1]) or (call.grouped and torch_version() < (2, 14)):
        return False
    return _heads_fit(call) and _is_dense(call, single_counts=False)


def _alignment(gpu: Gpu, dtype: torch.dtype) -> int:
    """Return the divisor of a head's size, by the loads of tensor cores."""
    is_half = dtype in HALVES
    least = 4 if gpu.major >= 8 else 1
    has_cores = gpu.major >= 8 or (gpu.major >= 7 and is_half)
    return max(least, 128 // (16 if is_half else 32)) if has_cores else least


def _takes_cudnn(gpu: Gpu, call: _Attention) -> bool:
    query, key, value = call.tensors
    if not torch._C._get_cudnn_sdp_enabled() or not _is_narrow(gpu, call):
        return False
    if (call.dropout * _CUDNN_DROPOUT_STEPS) % 1 or torch.are_deterministic_algorithms_enabled():
        return False
    if max(query.shape[:2]) > _MOST_CUDNN_ROWS or key.shape[2] == 1 or (call.dropout and query.shape[2] == 1):
        return False
    sizes = query.shape[3], value.shape[3]
    if any(size % 8 for size in sizes) or not _cudnn_has_heads_of(gpu, *sizes, wanted=is_wanted(call.tensors)):
        return False
    return _heads_fit(call, same_of_key_and_value=False) and _is_dense(call, single_counts=True)


def _cudnn_has_heads_of(gpu: Gpu, size: int, of_value: int, *, wanted: bool) -> bool:
    is_datacenter = gpu.capability == (9, 0) or gpu.major == 10
    if max(size, of_value) <= _MOST_CUDNN_HEAD:
        return True
    if not is_datacenter:
        return False
    if torch_version() >= (2, 14):
        return (size, of_value) in ((192, 128), (256, 256)) if wanted else max(size, of_value) <= 256
    return (size, of_value) == (192, 128)


def _flash(call: _Attention, scale: float | None) -> Tensor:
    size = call.query.shape[-1]
    padded = [_padded_to_eight(each) for each in call.tensors]
    chosen = size**-0.5 if scale is None else scale
    out: Tensor = aten._scaled_dot_product_flash_attention(*padded, call.dropout, call.is_causal, False, scale=chosen)[
        0
    ]
    return out if out.shape[-1] == size else out.narrow(-1, 0, size)


def _padded_to_eight(tensor: Tensor) -> Tensor:
    missing = -tensor.shape[-1] % 8
    return torch.constant_pad_nd(tensor, [0, missing]) if missing else tensor


def _efficient(call: _Attention, scale: float | None) -> Tensor:
    query, key, value = call.tensors
    mask = _added(call.mask, query.dtype)
    if mask is not None:
        mask = _aligned(mask).expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    out: Tensor = aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, is_wanted(call.tensors), call.dropout, call.is_causal, scale=scale
    )[0]
    return out


def _aligned(mask: Tensor) -> Tensor:
    """Return a mask whose rows begin at multiples of eight elements."""
    if mask.stride(-1) == 1 and all(stride % 8 == 0 for stride in mask.stride()[:-1]):
        return mask
    columns = mask.shape[-1]
    return torch.constant_pad_nd(mask, [0, 8 - columns % 8]).narrow(-1, 0, columns)


def _cudnn(call: _Attention, scale: float | None) -> Tensor:
    mask = _added(call.mask, call.query.dtype)
    if mask is not None and mask.dim() == 3:
        mask = mask.unsqueeze(1)
    out: Tensor = aten._scaled_dot_product_cudnn_attention(
        *call.tensors, mask, is_wanted(call.tensors), call.dropout, call.is_causal, False, scale=scale
    )[0]
    return out


def _added(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return an additive mask: True becomes 0, False negative infinity."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    zero, never = (torch.scalar_tensor(each, dtype=dtype) for each in (0.0, float("-inf")))
    return torch.where(mask, zero, never)


_Attend = Callable[[_Attention, float | None], Tensor]
_Takes = Callable[[Gpu, _Attention], bool]

COMPOSITES: Composites = {aten.scaled_dot_product_attention.default: scaled_dot_product_attention}
