"""Saved tensors on the host without a plan: before it is made, and in a step that has left it.

Under a memory limit, a step that has left its plan keeps saved tensors on the GPU up to a third of the memory free at
its begin, less weight gradients to come; the rest is for other tensors and fragmentation. Beyond that they are copied
to pageable host memory at once, and back when they are unpacked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from calibration.apply.saved_storage import SavedTensor, TensorLayout


class HostTensor(SavedTensor):
    """The replacement of a saved tensor whose content is in pageable host memory."""

    __slots__ = ("_content", "_device")

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor)
        kept = self._tensor
        self._layout, self._device = TensorLayout.of(kept), kept.device
        storage = kept.untyped_storage()
        self._content = torch.empty(storage.nbytes(), dtype=torch.uint8)
        self._content.copy_(torch.empty(0, dtype=torch.uint8, device=kept.device).set_(storage))
        # It shares the version counter, and holds no memory.
        kept.data = torch.empty(0, dtype=kept.dtype, device=kept.device)

    def unpack(self) -> torch.Tensor:
        """Return the tensor in new memory, or raise RuntimeError where it was written since it was saved."""
        self.check()
        assert self._layout is not None, "it was made so"
        with torch.no_grad():
            return self._layout.on(self._content.to(self._device, copy=True).untyped_storage())


@contextmanager
def saving_on_host(note: Callable[[torch.UntypedStorage], object]) -> Iterator[None]:
    """Keep saved tensors of other devices on the host; `note` is called with their storages."""

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
    """Saved tensors on a GPU of a step that left its plan, with `begin_bytes` allocated at its begin."""

    def __init__(self, device: torch.device, limit_bytes: int, begin_bytes: int) -> None:
        self._device, self._limit_bytes, self._begin_bytes = device, limit_bytes, begin_bytes
        self._weights: set[int] | None = None
        self._kept_bytes = 0

    def save(self, tensor: torch.Tensor, model: nn.Module | None) -> SavedTensor:
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
    """Return the allocated bytes up to which saved tensors are kept on the GPU."""
    return begin_bytes + max(0, limit_bytes - begin_bytes - gradient_bytes) // 3


def allocated_bytes(device: torch.device) -> int:
    """Return the allocated bytes on a GPU; 0 on the CPU."""
    if device.type != "cuda":
        return 0
    found: int = torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"]
    return found


def _identity(tensor: torch.Tensor) -> int:
    identity: int = tensor.untyped_storage()._cdata  # noqa: SLF001
    return identity
