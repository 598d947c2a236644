"""Bytes that an operation moves at least: each operand read once, each result written once."""

import math
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch._ops import OpOverload

from calibration.capture.schemas import name_of, only_writes, operands_of, tensors_in

_ALLOCATING: Final = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted"}
_LOOKUPS: Final = {"embedding", "index_select", "gather", "index"}
"""Read of their first operand only what they return."""


def traffic_of(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> int:
    """Return the bytes that an operation moves; 0 where it only takes memory."""
    name = name_of(func)
    if name in _ALLOCATING:
        return 0
    given = list(operands_of(func, args, kwargs))
    known = {tensor.untyped_storage()._cdata for tensor, _ in given}  # noqa: SLF001 - its identity
    results = [each for each in tensors_in(result) if each.untyped_storage()._cdata not in known]  # noqa: SLF001
    total = sum(map(distinct_bytes, results))
    for position, (tensor, is_written) in enumerate(given):
        size = distinct_bytes(tensor)
        if name in _LOOKUPS and position == 0:
            size = min(size, sum(map(distinct_bytes, results)))
        total += size * 2 if is_written and not only_writes(func) else size
    return total


def distinct_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of the elements of a tensor, those once that an expanded dimension repeats."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size)
    return math.prod(sizes) * tensor.element_size()
