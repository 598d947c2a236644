"""What a step that has left its plan saves for backward, where memory was limited: some of it waits on the host.

Such a step runs as without a plan, and would take what the plan is to save. It may keep on the GPU what fills a third
of the room that it found, less the gradients of weights that it is still to make: operations need the rest for what
they make themselves, and for gaps. What comes then is copied to the host when it is saved, and back when it is taken.
"""

import torch
from torch import nn

from calibration.apply.saved_storage import Layout, Packed, refuse_written


class Spilled(Packed):
    """What autograd keeps in the place of a tensor whose content lies in pageable host memory."""

    __slots__ = ("_content", "_device", "_place", "_shape")

    def __init__(self, tensor: torch.Tensor) -> None:
        kept = tensor.detach()
        self.save = self.held = None
        self._place, self._shape, self._device = Layout.of(kept), kept.shape, kept.device
        storage = kept.untyped_storage()
        self._content = torch.empty(storage.nbytes(), dtype=torch.uint8)
        self._content.copy_(torch.empty(0, dtype=torch.uint8, device=kept.device).set_(storage))
        # It still counts what is written to the tensor, and holds none of its memory.
        self._version = None if kept.is_inference() else kept._version  # noqa: SLF001 - PyTorch has no public one
        kept.data = torch.empty(0, dtype=kept.dtype, device=kept.device)
        self._tensor = kept

    def unpack(self) -> torch.Tensor:
        """Return the tensor in memory of its own.

        Raises:
            RuntimeError: it was written over since it was saved.
        """
        self.check()
        with torch.no_grad():
            return self._place.on(self._content.to(self._device, copy=True).untyped_storage())

    def check(self) -> None:
        """Refuse what was written over, as PyTorch does without hooks."""
        if self._version is not None:
            refuse_written(self._tensor, self._version, self._shape, "for gradient computation")


class Budget:
    """What a step that left its plan may keep on a GPU.

    Args:
        device: of the model.
        limit_bytes: that PyTorch may reserve.
        begin_bytes: that were allocated when the step began.
    """

    def __init__(self, device: torch.device, limit_bytes: int, begin_bytes: int) -> None:
        self._device, self._limit_bytes, self._begin_bytes = device, limit_bytes, begin_bytes
        self._weights: set[int] | None = None
        self._kept_bytes = 0

    def packed(self, tensor: torch.Tensor, model: nn.Module | None) -> Packed:
        """Return what autograd keeps in the place of a tensor of the model's step."""
        if self._weights is None:
            parameters = [] if model is None else list(model.parameters())
            self._weights = {_identity(each) for each in parameters}
            to_come = sum(each.nbytes for each in parameters if each.requires_grad and each.grad is None)
            self._kept_bytes = most_kept(self._limit_bytes, self._begin_bytes, to_come)
        if tensor.device != self._device or tensor.is_leaf or _identity(tensor) in self._weights:
            # Somebody else holds it as well.
            return Packed(tensor, None, None)
        if allocated_bytes(self._device) <= self._kept_bytes:
            return Packed(tensor, None, None)
        return Spilled(tensor)


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
