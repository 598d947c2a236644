"""Saved tensors on the host without a plan: before one is made, and in a step that has left its plan.

A step that has left its plan, in limited memory, may keep on the GPU what fills a third of what was free when it began,
less the gradients of weights that it is still to make: operations need the rest for what they make themselves, and for
gaps. What is saved beyond it is copied to pageable memory of the host at once, and back when it is unpacked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from calibration.apply.saved_storage import Layout, SavedTensor


class HostTensor(SavedTensor):
    """What autograd keeps in the place of a tensor whose content lies in pageable host memory."""

    __slots__ = ("_content", "_device")

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor)
        kept = self._tensor
        self._layout, self._device = Layout.of(kept), kept.device
        storage = kept.untyped_storage()
        self._content = torch.empty(storage.nbytes(), dtype=torch.uint8)
        self._content.copy_(torch.empty(0, dtype=torch.uint8, device=kept.device).set_(storage))
        # It still counts what is written to the tensor, and holds none of its memory.
        kept.data = torch.empty(0, dtype=kept.dtype, device=kept.device)

    def unpack(self) -> torch.Tensor:
        """Return the tensor in memory of its own.

        Raises:
            RuntimeError: it was written over since it was saved.
        """
        self.check()
        assert self._layout is not None, "it was made so"
        with torch.no_grad():
            return self._layout.on(self._content.to(self._device, copy=True).untyped_storage())


@contextmanager
def saving_on_host(note: Callable[[torch.UntypedStorage], object]) -> Iterator[None]:
    """Keep on the host what autograd saves of other devices; `note` is called with its storage."""

    def pack(tensor: torch.Tensor) -> SavedTensor | torch.Tensor:
        if tensor.is_leaf or tensor.device.type == "cpu":
            return tensor
        note(tensor.untyped_storage())
        return HostTensor(tensor)

    def unpack(packed: SavedTensor | torch.Tensor) -> torch.Tensor:
        return packed if isinstance(packed, torch.Tensor) else packed.unpack()

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


class GpuBudget:
    """What a step that left its plan may keep on a GPU, where `begin_bytes` were allocated when it began."""

    def __init__(self, device: torch.device, limit_bytes: int, begin_bytes: int) -> None:
        self._device, self._limit_bytes, self._begin_bytes = device, limit_bytes, begin_bytes
        self._weights: set[int] | None = None
        self._kept_bytes = 0

    def save(self, tensor: torch.Tensor, model: nn.Module | None) -> SavedTensor:
        """Return what autograd keeps in the place of a tensor of the model's step."""
        if self._weights is None:
            parameters = [] if model is None else list(model.parameters())
            self._weights = {_identity(each) for each in parameters}
            to_come = sum(each.nbytes for each in parameters if each.requires_grad and each.grad is None)
            self._kept_bytes = most_kept(self._limit_bytes, self._begin_bytes, to_come)
        is_held_by_others = tensor.device != self._device or tensor.is_leaf or _identity(tensor) in self._weights
        if is_held_by_others or allocated_bytes(self._device) <= self._kept_bytes:
            return SavedTensor(tensor)
        return HostTensor(tensor)


def most_kept(limit_bytes: int, begin_bytes: int, gradient_bytes: int) -> int:
    """Return up to how many allocated bytes such a step keeps what it saves."""
    return begin_bytes + max(0, limit_bytes - begin_bytes - gradient_bytes) // 3


def allocated_bytes(device: torch.device) -> int:
    """Return what PyTorch has allocated on a GPU; 0 on the CPU, of which it keeps no count."""
    if device.type != "cuda":
        return 0
    found: int = torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"]
    return found


def _identity(tensor: torch.Tensor) -> int:
    identity: int = tensor.untyped_storage()._cdata  # noqa: SLF001
    return identity
