"""A plan in a user's loop: each step runs with hooks that follow the plan.

Where a step departs from the captured one, its rest runs without the plan: nothing more is offloaded, and offloaded
storages are copied back when backward unpacks them.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from threading import Lock, get_ident
from typing import Final

import torch
from torch import nn
from torch.autograd.graph import increment_version
from torch.optim.optimizer import register_optimizer_step_post_hook

from calibration.apply.live_schedule import LiveSchedule
from calibration.apply.loop_state import LoopState, StepLog
from calibration.apply.optimizer_states import States
from calibration.apply.reservation import Reservation
from calibration.apply.step_hooks import StepHooks
from calibration.capture.nodes import is_in_backward
from calibration.capture.wrapped import is_sharded, unwrapped, was_made_by_compile
from vdnnsim.dnn.training_loops import OPTIMIZERS
from vdnnsim.errors import ExecutionRefused

_PLANNED: Final = weakref.WeakSet[nn.Module]()
"""Models to which a plan was applied."""


class Loop(LoopState):
    """A plan ready for the steps of one model; `steps` are logs of the latest ones."""

    KEPT_STEPS = 16

    def __init__(self, schedule: LiveSchedule, device: torch.device, reservation: Reservation) -> None:
        super().__init__(schedule, device, reservation)
        # By thread, as PyTorch's hooks of saved tensors.
        self._running: dict[int, StepHooks] = {}
        self._lock = Lock()
        self._streamed: weakref.ref[torch.optim.Optimizer] | None = None
        self.steps: list[StepLog] = []
        self.make_hooks: Callable[[LoopState, nn.Module], StepHooks] = StepHooks

    @contextmanager
    def apply(self, model: nn.Module) -> Iterator[StepLog]:
        """Apply the plan to a step of the model: forward and backward run within, or backward after it.

        Raises:
            ExecutionRefused: optimizer states are not streamed, or a sharded model would be recomputed.
        """
        if self.schedule.states and self._streamed is None:
            raise self._refused(
                "has the optimizer's states on the host, expected plan.stream(optimizer, model) before the first step"
            )
        model = unwrapped(model)
        _count_fused_updates()
        _PLANNED.add(model)
        if self.schedule.recomputed_operations and is_sharded(model):
            raise self._refused(
                "recomputes what FSDP gathers weights for, expected a plan that only offloads, as policy "
                "'optimal(recompute=false)'"
            )
        if self.arena.is_used and not is_in_backward():
            _drop_failed_backward()
        thread = get_ident()
        with self._lock:
            outer = self._running.get(thread)
            if outer is None:
                self.reservation.take(model)
                self.arena.reserve(self.schedule.pinned_bytes)
                hooks = self.make_hooks(self, model)
                # A running step may have used no slot yet.
                may_offload = not self._running and self.arena.open(hooks.number)
                self._running[thread] = hooks
                self.steps = [*self.steps[1 - self.KEPT_STEPS :], hooks.log]
        if outer is not None:
            outer.depart("a context of the plan opened within another")
            yield outer.log
            return
        try:
            # Not one that is compiled in place, as `apply` replaces the call of a script's model.
            if was_made_by_compile(model):
                hooks.depart("the model is one that torch.compile made, expected the model without it")
            elif self.schedule.offloaded and not may_offload:
                hooks.depart(
                    "another step has what it needs in pinned memory: it runs in another thread, or its backward did "
                    "not run"
                )
            with nullcontext() if self._needs_no_hooks else hooks.installed():
                yield hooks.log
        finally:
            del self._running[thread]

    @property
    def _needs_no_hooks(self) -> bool:
        """Whether a step does the same without them, and is not timed; they would check that it is as captured."""
        return self.schedule.is_idle and not self.reservation.is_limited and self.make_hooks is StepHooks

    def stream(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Keep the states of an optimizer on the host; see `States`.

        Raises:
            ExecutionRefused: the plan keeps them on the device, or was made for another optimizer.
        """
        name = self.schedule.captured.optimizer
        if not self.schedule.states:
            raise self._refused(
                "keeps the optimizer's states on the GPU, expected one of policy 'optimal(offload_optimizer=true)'"
            )
        if type(optimizer).__name__ != OPTIMIZERS[name][0]:
            raise ExecutionRefused(f"optimizer: found {type(optimizer).__name__}, expected {name}, as planned")
        former = self._streaming
        if former is optimizer:
            return
        if former is not None:
            raise self._refused("has the states of another optimizer on the host, expected one plan for each optimizer")
        self.arena.reserve(self.schedule.pinned_bytes)
        States(optimizer, unwrapped(model), self.schedule.states, self.arena, self.copy_stream)
        self._streamed = weakref.ref(optimizer)

    def unpin(self) -> None:
        """Unpin memory until the next step, unless it is in use."""
        with self._lock:
            if not self._running and self._streaming is None:
                self.arena.give_back_unused()

    @property
    def _streaming(self) -> torch.optim.Optimizer | None:
        """The optimizer whose states are in pinned memory."""
        return None if self._streamed is None else self._streamed()

    def _refused(self, why: str) -> ExecutionRefused:
        return ExecutionRefused(f"{self.schedule.captured.model}: the plan {why}")


@cache
def _count_fused_updates() -> None:
    """Count what a fused optimizer writes to planned models, which PyTorch does not: to read it later is refused."""

    def count(optimizer: torch.optim.Optimizer, _: object, __: object) -> None:
        fused = [each for group in optimizer.param_groups if group.get("fused") for each in group["params"]]
        planned = {id(each) for model in _PLANNED for each in model.parameters()} if fused else ()
        increment_version([each for each in fused if id(each) in planned])

    register_optimizer_step_post_hook(count)


def _drop_failed_backward() -> None:
    """Make PyTorch drop the rest of a failed backward, which it holds until the next one of its thread."""
    with torch.enable_grad():
        torch.zeros((), device="cpu", requires_grad=True).backward()  # type: ignore[no-untyped-call]
