"""What stays in the memory of a device between the runs of a plan, as weights do in training."""

from collections.abc import Set as AbstractSet

import torch

from calibration.devices.port import Device, MemoryCount
from vdnnsim.plans.repetition import resident_buffers
from vdnnsim.plans.training_plan import TrainingPlan


class Residents:
    """The buffers of one plan that stay, on a device that runs one plan after the other.

    Attributes:
        runs: how often the plan was begun since it settled in.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._plan: TrainingPlan | None = None
        self._buffers: AbstractSet[int] = frozenset()
        self._held: dict[int, torch.Tensor] = {}
        self._before = device.in_use()
        self.runs = 0

    def settle(self, plan: TrainingPlan) -> None:
        """Begin a run of a plan; one that follows another finds an empty cache, so that what it reserves is told."""
        if plan is not self._plan:
            self.leave()
            self._plan, self._buffers = plan, resident_buffers(plan)
            self._before = self._device.in_use()
        self.runs += 1

    def leave(self) -> None:
        """Give everything back to the device, and what its allocator holds for later."""
        while self._held:
            self._device.release(self._held.popitem()[1])
        self._device.empty_cache()
        self._plan, self._buffers, self.runs = None, frozenset(), 0

    def take(self, buffer: int) -> torch.Tensor | None:
        """Return the bytes of a buffer that stayed; None of any other."""
        return self._held.pop(buffer, None)

    def keep(self, buffer: int, taken: torch.Tensor) -> bool:
        """Let a buffer stay; return whether it is one that does."""
        if buffer not in self._buffers:
            return False
        self._held[buffer] = taken
        return True

    @property
    def counted(self) -> MemoryCount:
        """What is in use now, beyond what was when the plan settled in."""
        return self._device.in_use() - self._before
