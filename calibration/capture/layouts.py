"""Copies of tensors with their layout: strides, offsets, and the storages that they share."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeVar

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

Tree = TypeVar("Tree")
_ALIGNED_BYTES: Final = 512
"""CUDA's allocations begin at multiples of it, so that an offset keeps its alignment."""


def copied(tree: Tree, *, values: bool) -> Tree:
    """Return a tree of tensors, as the arguments of a call, with copies that are laid out as they are.

    Of a storage in host memory only the part that the tensors view is copied, for a loop moves that part to a GPU; of a
    storage on a GPU all of it, for all of it is held.

    Args:
        tree: as of `torch.utils._pytree`.
        values: whether copies are on the same device with the same values. Else they are on the CPU, and floating ones
            are uninitialized.
    """
    copies = _Copies([each for each in tree_leaves(tree) if isinstance(each, torch.Tensor)], values=values)
    result: Tree = tree_map_only(torch.Tensor, copies.of, tree)
    return result


class _Copies:
    def __init__(self, tensors: Iterable[torch.Tensor], *, values: bool) -> None:
        self._values = values
        self._made: dict[int, torch.Tensor] = {}
        self._pieces: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._spans: dict[tuple[int, torch.dtype], range] = {}
        distinct = {id(each): each for each in tensors if each.layout is torch.strided}
        self._users = Counter(map(_key, distinct.values()))
        for each in distinct.values():
            key, own = _key(each), _viewed(each)
            known = self._spans.get(key, own)
            self._spans[key] = range(min(known.start, own.start), max(known.stop, own.stop))

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the copy of a tensor, the same one each time."""
        if id(tensor) not in self._made:
            plain = tensor.detach()
            is_apart = tensor.layout is not torch.strided or (
                self._users[_key(tensor)] == 1 and len(self._spans[_key(tensor)]) == tensor.numel()
            )
            copy = self._copy(plain) if is_apart else self._view(plain)
            self._made[id(tensor)] = copy.requires_grad_(tensor.requires_grad)
        return self._made[id(tensor)]

    def _view(self, tensor: torch.Tensor) -> torch.Tensor:
        key = _key(tensor)
        span = self._spans[key]
        if key not in self._pieces:
            self._pieces[key] = self._copy(tensor.as_strided((len(span),), (1,), span.start))
        return self._pieces[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset() - span.start)

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._values:
            return tensor.clone()
        return torch.empty_like(tensor, device="cpu") if tensor.is_floating_point() else tensor.clone().cpu()


def _key(tensor: torch.Tensor) -> tuple[int, torch.dtype]:
    return tensor.untyped_storage()._cdata, tensor.dtype  # noqa: SLF001 - its identity


def _viewed(tensor: torch.Tensor) -> range:
    """Return the elements of the storage from the first to the last one of a tensor; on a GPU all."""
    if tensor.is_cuda:
        return range(tensor.untyped_storage().nbytes() // tensor.itemsize)
    first = tensor.storage_offset()
    if not tensor.numel():
        return range(first, first)
    steps = ((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return range(first - first % (_ALIGNED_BYTES // tensor.itemsize), first + sum(steps) + 1)
