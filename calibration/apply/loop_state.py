"""The state that the steps of a live loop share, and the log of one step."""

import warnings
from dataclasses import dataclass, field
from itertools import count

import torch

from calibration.apply.copy_stream import CopyStream, copy_stream_for
from calibration.apply.live_schedule import LiveSchedule, Offload
from calibration.apply.pinned_slots import PinnedSlots
from calibration.apply.reservation import Reservation


@dataclass
class StepLog:
    """What a step did.

    Attributes:
        offloaded_bytes, fetched_bytes: that were copied.
        order: `offload`, `release`, `prefetch` and `recompute`, with a storage each, in the order in which they began.
        on_demand: storages that backward waited for, because their prefetch had not begun.
        departure: where the step left what was captured; empty where it did not.
    """

    offloaded_bytes: int = 0
    fetched_bytes: int = 0
    order: list[tuple[str, int]] = field(default_factory=list)
    on_demand: list[int] = field(default_factory=list)
    departure: str = ""


class LoopState:
    """What all steps of a loop share.

    Attributes:
        schedule: that they follow.
        device: of the model.
        reservation: of the GPU's memory.
        copy_stream: where copies run.
        arena: pinned memory that they use.
        numbers: of the next steps.
    """

    def __init__(self, schedule: LiveSchedule, device: torch.device, reservation: Reservation) -> None:
        self.schedule, self.device, self.reservation = schedule, device, reservation
        self.copy_stream: CopyStream = copy_stream_for(device)
        offloads = (each for due in schedule.actions for each in due if isinstance(each, Offload))
        self.arena = PinnedSlots(self.copy_stream, ((each.offset, len(each.extent)) for each in offloads))
        self.arena.reserve(schedule.pinned_bytes)
        self.numbers = count(1)
        self._has_warned = False

    def warn(self, why: str) -> None:
        """Say once that a step was not as captured."""
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"the plan of {self.schedule.captured.model} was left: {why}; the rest of the step runs as without a "
                "plan",
                stacklevel=2,
            )
