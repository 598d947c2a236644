"""Measurement of the bytes that autograd saves, and of the bytes of all live storages."""
# ruff: noqa: ANN401 - torch does not say what it dispatches

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


def saved_bytes(compute: Callable[[], torch.Tensor], aside: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the storages that autograd saves in forward, each once, those of `aside` left out."""
    left_out = {_key(tensor) for tensor in aside}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if _key(tensor) not in left_out:
            saved[_key(tensor)] = tensor.untyped_storage()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = compute()
    del result
    return sum(storage.nbytes() for storage in saved.values())


@dataclass(frozen=True)
class Moment:
    """State after an operator, called by a node of autograd in backward, has returned a new storage.

    Of each live storage it has the operator and node that made it, and its bytes.
    """

    operator: str
    node: str
    live_bytes: int
    storages: Sequence[tuple[str, int]] = ()


class LiveBytes(TorchDispatchMode):
    """Tracks every storage from the operator that returns it until it is freed.

    Autograd's engine accumulates gradients in place if it holds the only reference to the first
    (`can_accumulate_inplace` in torch/csrc/autograd/input_buffer.cpp), but not under a Python dispatch mode. So the
    addition is made in place here where the engine would.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.moments: list[Moment] = []
        self.peak = Moment("", "", 0)
        self._alive: dict[int, tuple[str, int]] = {}

    def hold(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count tensors that exist from the beginning."""
        for tensor in tensors:
            self._follow(tensor, "given")

    def __torch_dispatch__(
        self, func: Any, _types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator, and track the storages that it returns."""
        node: Any = torch._C._current_autograd_node()  # noqa: SLF001 - there is no public way
        called = torch.ops.aten.add_.Tensor if node and _engine_adds_in_place(func, args) else func
        result = called(*args, **(kwargs or {}))
        name = node.name() if node else ""
        born = [self._follow(each, f"{func} {name}") for each in tree_iter(result) if isinstance(each, torch.Tensor)]
        if any(born):
            self.moments.append(Moment(str(func), name, self.live_bytes))
            if self.live_bytes > self.peak.live_bytes:
                self.peak = Moment(str(func), name, self.live_bytes, tuple(self._alive.values()))
        return result

    def _follow(self, tensor: torch.Tensor, name: str) -> bool:
        storage = tensor.untyped_storage()
        if _key(tensor) in self._alive or not storage.nbytes():
            return False
        self._alive[_key(tensor)] = name, storage.nbytes()
        self.live_bytes += storage.nbytes()
        weakref.finalize(storage, self._bury, _key(tensor))
        return True

    def _bury(self, key: int) -> None:
        self.live_bytes -= self._alive.pop(key)[1]


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - as PyTorch's own StorageWeakRef


def _engine_adds_in_place(func: object, args: Sequence[Any]) -> bool:
    """Whether the engine would make this addition in place; all additions in backward of twins are the engine's.

    A tensor to which the engine alone refers has four references here and its storage two, that of a view three.
    """
    if func is not torch.ops.aten.add.Tensor:
        return False
    held = args[0]
    references = torch._C._storage_Use_Count(_key(held))  # noqa: SLF001 - as above
    return bool(held._use_count() == 4 and references == 2)  # noqa: SLF001 - as above
