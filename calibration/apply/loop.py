"""A plan in a user's loop: each step is followed save by save, and does what the plan says where it is as captured.

Where a step departs from what was captured, its rest runs as without a plan: nothing more leaves, and what has left
comes back when backward takes it.
"""

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Lock, get_ident

import torch
from torch import nn

from calibration.apply.copy_stream import Lane, lane_for
from calibration.apply.model_discovery import is_sharded
from calibration.apply.optimizer_states import States
from calibration.apply.pinned_slots import PinnedSlots
from calibration.apply.plan_actions import Agenda, Leave
from calibration.apply.reservation import Room
from calibration.apply.step_hooks import Following, StepLog
from calibration.apply.storage_uses import made_by, touched_by
from calibration.capture.nodes import is_in_backward
from calibration.capture.program import OPTIMIZERS
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import ExecutionRefused


class Loop:
    """A plan ready for the steps of one model.

    Attributes:
        steps: what each did, the latest last; only so many are kept.
        numbers: of the steps to come.
        lane: where copies run.
        room: that the loop takes of a GPU.
        follow: makes what follows a step.
    """

    KEPT_STEPS = 16

    def __init__(self, captured: CapturedStep, agenda: Agenda, device: torch.device, room: Room) -> None:
        self.captured, self.agenda, self.device = captured, agenda, device
        self.room = room
        self.lane: Lane = lane_for(device)
        left = (each for due in agenda.actions for each in due if isinstance(each, Leave))
        self.arena = PinnedSlots(self.lane, ((each.offset, len(each.extent)) for each in left))
        self.arena.reserve(agenda.pinned_bytes)
        self.made_by = made_by(captured)
        self.writers, self.readers = touched_by(captured, writes=True), touched_by(captured, writes=False)
        self.remakable = frozenset(each for each, by in self.writers.items() if agenda.again.issuperset(by))
        self.saved = frozenset(each.storage for each in agenda.tape.saves)
        saves = len(agenda.tape.saves)
        self.takes = {each.save: at + saves for at, each in reversed(list(enumerate(agenda.tape.takes)))}
        self.numbers = count(1)
        # By thread, as PyTorch has hooks on what is saved.
        self._running: dict[int, Following] = {}
        self._lock = Lock()
        self._has_warned = False
        self._streamed: weakref.ref[torch.optim.Optimizer] | None = None
        self.steps: list[StepLog] = []
        self.follow: Callable[[Loop, nn.Module], Following] = Following

    @contextmanager
    def apply(self, model: nn.Module) -> Iterator[StepLog]:
        """Follow a step of the model: forward and backward run within, or backward after it.

        Raises:
            ExecutionRefused: the plan asks for what is not done here; the message says what.
        """
        if self.agenda.states and self._streamed is None:
            raise ExecutionRefused(
                f"{self.captured.model}: the plan has the optimizer's states on the host, expected "
                "plan.stream(optimizer, model) before the first step"
            )
        model = _within(model)
        if self.agenda.again and is_sharded(model):
            raise ExecutionRefused(
                f"{self.captured.model}: the plan computes again what FSDP gathers weights for and frees them behind, "
                "expected a plan that only moves, as policy 'optimal(recompute=false)'"
            )
        if self.arena.is_used and not is_in_backward():
            _drop_failed_backward()
        thread = get_ident()
        with self._lock:
            outer = self._running.get(thread)
            if outer is None:
                self.room.take(model)
                self.arena.reserve(self.agenda.pinned_bytes)
                following = self.follow(self, model)
                # A step that runs may have used no slot yet.
                may_offload = not self._running and self.arena.open(following.number)
                self._running[thread] = following
                self.steps = [*self.steps[1 - self.KEPT_STEPS :], following.log]
        if outer is not None:
            outer.depart("a context of the plan opened within another")
            yield outer.log
            return
        try:
            if self.agenda.moved and not may_offload:
                following.depart(
                    "another step has what it needs in pinned memory, for it runs in another thread or its backward "
                    "did not run"
                )
            with following.following():
                yield following.log
        finally:
            del self._running[thread]

    def stream(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Keep the states of an optimizer on the host; see `States`.

        Raises:
            ExecutionRefused: the plan keeps them on the device, or was made for another optimizer.
        """
        name = self.captured.optimizer
        if not self.agenda.states:
            raise ExecutionRefused(
                f"{self.captured.model}: the plan keeps the optimizer's states on the GPU, expected one of policy "
                "'optimal(offload_optimizer=true)'"
            )
        if type(optimizer).__name__ != OPTIMIZERS[name][0]:
            raise ExecutionRefused(f"optimizer: found {type(optimizer).__name__}, expected {name}, as planned")
        former = self._streaming
        if former is optimizer:
            return
        if former is not None:
            raise ExecutionRefused(
                f"{self.captured.model}: the plan has the states of another optimizer on the host, expected one plan "
                "for each optimizer"
            )
        self.arena.reserve(self.agenda.pinned_bytes)
        States(optimizer, _within(model), self.agenda.states, self.arena, self.lane)
        self._streamed = weakref.ref(optimizer)

    def rest(self) -> None:
        """Give pinned memory back until the next step, unless something lies in it."""
        with self._lock:
            if not self._running and self._streaming is None:
                self.arena.give_back_unused()

    @property
    def _streaming(self) -> torch.optim.Optimizer | None:
        """The optimizer whose states are in pinned memory."""
        return None if self._streamed is None else self._streamed()

    def warn(self, why: str) -> None:
        """Say once that a step was not as captured."""
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"the plan of {self.captured.model} was left: {why}; the rest of the step runs as without a plan",
                stacklevel=2,
            )


def _drop_failed_backward() -> None:
    """Let PyTorch drop what is left of a backward that failed, which it holds until the next one of its thread."""
    with torch.enable_grad():
        torch.zeros((), device="cpu", requires_grad=True).backward()  # type: ignore[no-untyped-call]


def _within(model: nn.Module) -> nn.Module:
    """Return the model itself: what DDP does around its forward is none of its operations."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
