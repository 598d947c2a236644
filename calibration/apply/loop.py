"""A plan in a user's loop: each step is followed save by save, and does what the plan says where it is as captured.

Where a step departs from what was captured, its rest runs as without a plan: nothing more leaves, and what has left
comes back when backward takes it.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from calibration.apply.agenda import Agenda
from calibration.apply.following import Following, StepLog
from calibration.apply.found import is_sharded
from calibration.apply.lane import Lane, lane_for
from calibration.apply.room import Room
from calibration.apply.states import States
from calibration.arena import PinnedArena
from calibration.capture.program import OPTIMIZERS
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import ExecutionRefused


class Loop:
    """A plan ready for the steps of one model.

    Attributes:
        steps: what each did, the latest last; only so many are kept.
        lane: where copies run.
        room: that the loop takes of a GPU.
        follow: makes what follows a step.
    """

    KEPT_STEPS = 16

    def __init__(self, captured: CapturedStep, agenda: Agenda, device: torch.device, room: Room) -> None:
        self.captured, self.agenda, self.device = captured, agenda, device
        self.room = room
        self.lane: Lane = lane_for(device)
        self.arena = PinnedArena(self.lane)
        self.arena.reserve(agenda.pinned_bytes)
        self.made_by = _made_by(captured)
        self.writers, self.readers = _touched(captured, writes=True), _touched(captured, writes=False)
        self.remakable = frozenset(each for each, by in self.writers.items() if agenda.again.issuperset(by))
        self.saved = frozenset(each.storage for each in agenda.tape.saves)
        count = len(agenda.tape.saves)
        self.takes = {each.save: at + count for at, each in reversed(list(enumerate(agenda.tape.takes)))}
        self._running: Following | None = None
        self._latest: Following | None = None
        self._has_warned = False
        self._streams = False
        self.steps: list[StepLog] = []
        self.follow: Callable[[Loop, nn.Module], Following] = Following

    @contextmanager
    def apply(self, model: nn.Module) -> Iterator[StepLog]:
        """Follow a step of the model: forward and backward run within, or backward after it.

        Raises:
            ExecutionRefused: the plan asks for what is not done here; the message says what.
        """
        if self.agenda.states and not self._streams:
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
        if self._running is not None:
            self._running.depart("a context of the plan opened within another")
            yield self._running.log
            return
        self.room.take(model)
        self.arena.reserve(self.agenda.pinned_bytes)
        following = self.follow(self, model)
        if self._latest is not None and self._latest.needs_host:
            following.depart("the step before still has what it needs in pinned memory: its backward did not run")
        self._running = self._latest = following
        self.steps = [*self.steps[1 - self.KEPT_STEPS :], following.log]
        try:
            with following.following():
                yield following.log
        finally:
            self._running = None

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
        States(optimizer, _within(model), self.agenda.states, self.arena, self.lane)
        self._streams = True

    def rest(self) -> None:
        """Give pinned memory back until the next step, unless something lies in it."""
        is_wanted = self._latest is not None and self._latest.needs_host
        if self._running is None and not self._streams and not is_wanted:
            self.arena.give_back()

    def warn(self, why: str) -> None:
        """Say once that a step was not as captured."""
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"the plan of {self.captured.model} was left: {why}; the rest of the step runs as without a plan",
                stacklevel=2,
            )


def _within(model: nn.Module) -> nn.Module:
    """Return the model itself: what DDP does around its forward is none of its operations."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def _made_by(captured: CapturedStep) -> dict[int, list[int]]:
    """Return by operation of forward the storages that it makes, in order."""
    made: dict[int, list[int]] = defaultdict(list)
    seen = {number for number, each in enumerate(captured.storages) if each.given}
    for position, operation in enumerate(captured.operations):
        for operand in operation.operands:
            number = captured.tensors[operand.tensor].storage
            if number not in seen:
                seen.add(number)
                made[position].append(number)
    return made


def _touched(captured: CapturedStep, *, writes: bool) -> dict[int, list[int]]:
    """Return by storage the operations of forward that write it, or that read it."""
    found: dict[int, list[int]] = defaultdict(list)
    for position, operation in enumerate(captured.operations):
        if operation.phase is not Phase.FORWARD:
            continue
        for operand in operation.operands:
            number = captured.tensors[operand.tensor].storage
            does = operand.access.writes if writes else operand.access.reads
            if does and position not in found[number]:
                found[number].append(position)
    return {number: operations for number, operations in found.items() if operations}
