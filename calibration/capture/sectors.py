"""Sectors that kernels of CUDA touch where their operands lie otherwise than what they write.

A pointwise kernel or a copy goes through elements in the order in which its result lies. Where all operands lie so,
threads load words; else a block takes 512 elements, one at a time, each operand's by its own strides. Memory moves
sectors of 32 bytes: where elements of a block lie farther apart, each takes a sector of its own, to whose others the
kernel returns when it has gone through a window of other elements. A sum goes through its result likewise, unless it
sums along what lies together.

Source, below `aten/src/ATen`: `TensorIterator.cpp` (`reorder_dimensions`), `native/cuda/CUDALoops.cuh`
(`gpu_kernel_impl_nocast`, 128 threads with 4 elements each), `native/cuda/Reduce.cuh` (`setReduceConfig`).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for

from calibration.capture.schemas import arguments_of, name_of, tensors_in
from vdnnsim.dnn.kernel_work import NO_SECTORS, Sectors

_SECTOR_BYTES: Final = 32
_BLOCK_ELEMENTS: Final = 512
_COPIES: Final = frozenset({"clone", "copy_", "_to_copy"})
_SUMS: Final = frozenset({"sum", "mean"})

_Strides = tuple[int, ...]
_Laid = tuple[_Strides, int]
"""Strides in elements, and the bytes of an element."""


def sectors_of(
    func: OpOverload,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    result: object,
    copied: Sequence[tuple[torch.Tensor, torch.memory_format]],
) -> Sectors:
    """Return what a pointwise kernel, a copy or a sum touches; of others the copies of operands before them."""
    if copied:
        copies = [_of_copy(*each) for each in copied]
        return Sectors(sum(each.nbytes for each in copies), max(each.window_bytes for each in copies))
    name = name_of(func)
    if name in _SUMS:
        return _of_sum(arguments_of(func, args, kwargs), tensors_in(result)[0])
    if torch.Tag.pointwise in func.tags or name in _COPIES:
        tensors = [each for each in (*tensors_in(result), *tensors_in(args)) if each.numel() > 1]
        if not tensors:
            return NO_SECTORS
        shape = tensors[0].shape
        return _touched(shape, tuple([(_strides_in(shape, each), each.element_size()) for each in tensors]))
    return NO_SECTORS


def _of_copy(x: torch.Tensor, order: torch.memory_format) -> Sectors:
    lay = make_contiguous_strides_for if order is torch.contiguous_format else make_channels_last_strides_for
    return _touched(x.shape, tuple((strides, x.element_size()) for strides in (lay(x.shape), x.stride())))


def _of_sum(given: Mapping[str, Any], y: torch.Tensor) -> Sectors:
    x, dims = given["self"], given.get("dim")
    summed = {each % x.dim() for each in dims} if dims else set(range(x.dim()))
    kept = [stride for at, stride in enumerate(y.stride()) if not (given.get("keepdim") and at in summed)]
    written = tuple(0 if at in summed else kept.pop(0) for at in range(x.dim()))
    return _summed(x.shape, x.stride(), written, x.element_size())


def _strides_in(shape: Sequence[int], x: torch.Tensor) -> _Strides:
    """Return the strides of a tensor that is broadcast to a shape."""
    if x.shape == shape:
        return x.stride()
    lacking = len(shape) - x.dim()
    pairs = zip(x.shape, x.stride(), shape[lacking:], strict=True)
    return (0,) * lacking + tuple(stride if size == whole else 0 for size, stride, whole in pairs)


@lru_cache(maxsize=4096)
def _touched(shape: Sequence[int], operands: tuple[_Laid, ...]) -> Sectors:
    """Return what a kernel touches that writes the first operand, in whose order it goes."""
    order = sorted((at for at, size in enumerate(shape) if size > 1), key=operands[0][0].__getitem__)
    sizes = [shape[at] for at in order]
    laid = [([strides[at] for at in order], width) for strides, width in operands]
    dense = [prod(sizes[:at]) for at in range(len(sizes))]
    return NO_SECTORS if all(strides == dense for strides, _ in laid) else _in_order(sizes, laid)


@lru_cache(maxsize=1024)
def _summed(shape: Sequence[int], read: _Strides, written: _Strides, width: int) -> Sectors:
    """Return what a sum touches of its operand; `written` are strides of the result, 0 along what is summed."""
    axes = [at for at, size in enumerate(shape) if size > 1 and read[at]]
    if not axes or not written[min(axes, key=read.__getitem__)]:
        return NO_SECTORS
    order = sorted(axes, key=lambda at: (not written[at], written[at] or read[at]))
    found = _in_order([shape[at] for at in order], [([read[at] for at in order], width)])
    return found if found.window_bytes else NO_SECTORS


def _in_order(sizes: Sequence[int], operands: Sequence[tuple[Sequence[int], int]]) -> Sectors:
    """Return what is touched along dimensions, the fastest first, in whole bytes an element."""
    elements, touched, window = prod(sizes), 0, 0
    for strides, width in operands:
        # Elements of a block that share a sector, and the dimension along which others follow.
        shared, within, back = 1, 1, 0
        for at, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
            most = min(size, _SECTOR_BYTES // (stride * width)) if stride else size
            taken = max(1, min(most, -(-_BLOCK_ELEMENTS // within)))
            if stride and taken < most:
                back = back or at
            shared *= taken
            within *= size
        if back and shared * width < _SECTOR_BYTES:
            each = _SECTOR_BYTES // shared
            touched += elements * each
            window = max(window, prod(sizes[:back]) * each)
        else:
            touched += width * prod(size for size, stride in zip(sizes, strides, strict=True) if stride)
    return Sectors(touched, window)
