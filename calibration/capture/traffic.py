"""Bytes that an operation moves at least: each operand read once, each result written once.

Where sums over a batch must be known before the first value, as for the moments of a batch normalization in training,
what is summed is read twice.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch._ops import OpOverload

from calibration.capture.schemas import arguments_of, name_of, only_writes, operands_of, tensors_in

_ALLOCATING: Final = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted"}
_LOOKUPS: Final = {"embedding", "index_select", "gather", "index"}
"""Read of their first operand only what they return."""
_SUMS_FIRST: Final = {
    "native_batch_norm": 1,
    "_native_batch_norm_legit": 1,
    "_batch_norm_with_update": 1,
    "cudnn_batch_norm": 1,
    "native_batch_norm_backward": 2,
    "batch_norm_backward": 2,
    "cudnn_batch_norm_backward": 2,
}
"""How many of their first operands are read twice: X, and in backward dY with it."""


def traffic_of(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> int:
    """Return the bytes that an operation moves; 0 where it only takes memory."""
    name = name_of(func)
    if name in _ALLOCATING:
        return 0
    given = list(operands_of(func, args, kwargs))
    known = {tensor.untyped_storage()._cdata for tensor, _ in given}  # noqa: SLF001 - its identity
    results = [each for each in tensors_in(result) if each.untyped_storage()._cdata not in known]  # noqa: SLF001
    total = sum(map(distinct_bytes, results))
    arguments = arguments_of(func, args, kwargs)
    summed = _SUMS_FIRST.get(name, 0) if arguments.get("training", arguments.get("train", True)) else 0
    for position, (tensor, is_written) in enumerate(given):
        size = distinct_bytes(tensor)
        if name in _LOOKUPS and position == 0:
            size = min(size, sum(map(distinct_bytes, results)))
        total += size * 2 if position < summed or (is_written and not only_writes(func)) else size
    return total


def distinct_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of the elements of a tensor, those once that an expanded dimension repeats."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size)
    return math.prod(sizes) * tensor.element_size()
