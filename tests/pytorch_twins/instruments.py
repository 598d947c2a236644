"""What PyTorch does with memory, watched: the bytes that autograd saves, and those of all storages that are alive."""

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


def saved_bytes(forward: Callable[[], torch.Tensor], aside: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the storages that autograd saves in forward, each once, those of `aside` left out."""
    left_out = {tensor.untyped_storage()._cdata for tensor in aside}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in left_out:
            saved[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward()
    del loss
    return sum(storage.nbytes() for storage in saved.values())


@dataclass(frozen=True)
class Moment:
    """After one call of an operator: what was called, on behalf of which node of autograd, and what is alive."""

    operator: str
    node: str
    live_bytes: int
    storages: tuple[tuple[str, int], ...]


class LiveBytes(TorchDispatchMode):
    """Follows every storage from the operator that returns it to its death.

    Autograd's engine adds the second gradient of a tensor into the first where it holds the only reference to it
    (`can_accumulate_inplace` in torch/csrc/autograd/input_buffer.cpp), but not while anything dispatches to Python. Its
    addition is replaced here by the one in place.

    Attributes:
        live_bytes: now.
        peak: the moment of most bytes.
    """

    def __init__(self, *, record: bool = False) -> None:
        super().__init__()
        self.live_bytes = 0
        self.peak = Moment("", "", 0, ())
        self.moments: list[Moment] = []
        self._record = record
        self._alive: dict[int, tuple[str, int]] = {}

    def hold(self, tensors: Iterable[torch.Tensor], name: str) -> None:
        """Count tensors that are there from the beginning."""
        for tensor in tensors:
            self._follow(tensor, name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "prim":
            return func(*args, **(kwargs or {}))
        node = torch._C._current_autograd_node()
        name = "" if node is None else node.name()
        if name and func is torch.ops.aten.add.Tensor and _is_only_reference(args[0]):
            result = torch.ops.aten.add_.Tensor(*args)
        else:
            result = func(*args, **(kwargs or {}))
        label = f"{func.name().removeprefix('aten::')} {name}".strip()
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor):
                self._follow(tensor, label)
        if self._record or self.live_bytes > self.peak.live_bytes:
            moment = Moment(func.name(), name, self.live_bytes, tuple(self._alive.values()))
            if self.live_bytes > self.peak.live_bytes:
                self.peak = moment
            if self._record:
                self.moments.append(moment)
        return result

    def _follow(self, tensor: torch.Tensor, name: str) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive or not storage.nbytes():
            return
        self._alive[key] = name, storage.nbytes()
        self.live_bytes += storage.nbytes()
        weakref.finalize(storage, self._bury, key)

    def _bury(self, key: int) -> None:
        self.live_bytes -= self._alive.pop(key)[1]


def _is_only_reference(tensor: torch.Tensor) -> bool:
    """Whether the engine holds the only reference to a gradient, apart from the four and two of a call."""
    storage = tensor.untyped_storage()
    return tensor._use_count() == 4 and torch._C._storage_Use_Count(storage._cdata) == 2
