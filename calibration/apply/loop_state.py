"""State shared by the steps of a live loop, and the log of one step."""

from dataclasses import dataclass, field
from itertools import count

import torch

from calibration.apply.copy_stream import CopyStream, copy_stream_for
from calibration.apply.live_schedule import LiveSchedule, Offload
from calibration.apply.pinned_slots import PinnedSlots
from calibration.apply.reservation import Reservation, warn


@dataclass
class StepLog:
    """Log of a step.

    Attributes:
        order: `offload`, `release`, `prefetch` and `recompute`, with a storage each, in the order of their begin.
        on_demand: storages whose prefetch had not begun when backward unpacked them.
        departure: how the step differed from the captured one; empty if it did not.
    """

    offloaded_bytes: int = 0
    fetched_bytes: int = 0
    order: list[tuple[str, int]] = field(default_factory=list)
    on_demand: list[int] = field(default_factory=list)
    departure: str = ""


class LoopState:
    """State shared by all steps of a loop."""

    def __init__(self, schedule: LiveSchedule, device: torch.device, reservation: Reservation) -> None:
        self.schedule, self.device, self.reservation = schedule, device, reservation
        self.copy_stream: CopyStream = copy_stream_for(device)
        offloads = (each for due in schedule.actions for each in due if isinstance(each, Offload))
        self.arena = PinnedSlots(self.copy_stream, ((each.offset, len(each.extent)) for each in offloads))
        self.arena.reserve(schedule.pinned_bytes)
        self.numbers = count(1)
        self._has_warned = self._has_told = False

    def warn(self, why: str) -> None:
        """Warn once that a step left the plan."""
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"the plan of {self.schedule.captured.model} was left: {why}; the rest of the step runs as without a "
                "plan"
            )

    def tell_of_compiled_call(self) -> None:
        """Warn once that a call that torch.compile compiled is in a step that follows the plan."""
        if not self._has_told:
            self._has_told = True
            warn(
                f"a call in the context of the plan of {self.schedule.captured.model} is compiled by torch.compile; it "
                "follows the plan, which is of operators, as far as PyTorch runs it eagerly"
            )
