"""The models that a script trains: how each is followed, when it is planned, and the memory it leaves to others."""

import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from calibration.apply.loss import DownstreamLoss, RecordedLoss
from calibration.apply.model_discovery import beside_bytes, has_untrained, optimizers_of
from calibration.capture.nodes import is_in_backward
from vdnnsim.units import Precision

_PATIENCE: Final = 16
"""Calls of models that are known after which those that have an optimizer and were not trained yet run as they are."""
Shapes = list[tuple[torch.Size, torch.dtype]]


def shapes_of(*inputs: object) -> Shapes:
    """Return the shapes and types of the tensors in the arguments of a call."""
    return [(each.shape, each.dtype) for each in tree_leaves(inputs) if isinstance(each, torch.Tensor)]


class Applied(Protocol):
    """A plan that was made.

    Attributes:
        own_bytes: that a step takes at most beside what it is given.
    """

    own_bytes: int

    def apply(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Return the context of a step."""

    def end(self) -> int:
        """Return by how many bytes more was reserved than the plan may take, up to now."""


class Watcher(Protocol):
    """The hooks on the script."""

    def plan(self, trained: "TrainedModel", args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Make the plan of a model that is called, if it is time; return whether there is one."""

    def begin_step(self, trained: "TrainedModel") -> None:
        """End the step before, and begin one of a model."""

    def end_step(self) -> None:
        """End the step that was begun last, if it has not ended."""


@dataclass
class TrainedModel:
    """A model that is trained; its calls are found where `Module.compile` would put what it made.

    Attributes:
        model: itself, without what DDP puts around it.
        loss: of its step, until its plan is made: the script's own, or a stand-in where others take the output.
        precision: in which it is called.
        shapes: of its inputs.
        saved_bytes: that autograd kept of its first forward.
        held: what the script itself still held after the first backward.
        applied: its plan, once there is one.
        is_part: whether others make of its output what it is trained by, so that a step of it is its forward.
    """

    model: nn.Module
    loss: RecordedLoss | DownstreamLoss | None
    precision: Precision
    shapes: Shapes
    saved_bytes: int
    held: list["weakref.ref[torch.Tensor]"] = field(default_factory=list)
    applied: Applied | None = None
    is_part: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_part = isinstance(self.loss, DownstreamLoss)

    @property
    def gradient_bytes(self) -> int:
        """What the gradients of its weights will take that are not there now."""
        return sum(each.nbytes for each in self.model.parameters() if each.requires_grad and each.grad is None)

    def beside_bytes(
        self, loss: RecordedLoss | DownstreamLoss | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> int:
        """Return what is on a GPU now that is none of the model's, its optimizers' or its batch's."""
        optimizers = optimizers_of(self.model)
        states = [value for each in optimizers for state in each.state.values() for value in state.values()]
        # What a script holds of its output it will have dropped for the next one.
        outputs = (each() for each in self.held)
        constants = loss.constants if isinstance(loss, RecordedLoss) else []
        known = [*self.model.parameters(), *self.model.buffers(), *states, *constants, *outputs]
        return beside_bytes([*known, *tree_leaves((args, kwargs))])

    def follow(self, watcher: Watcher) -> None:
        """Have a watcher hear of its calls, and apply its plan once there is one."""
        self.model._compiled_call_impl = self._following(watcher)  # noqa: SLF001 - PyTorch's own place

    def leave(self) -> None:
        """Let it be called as before."""
        self.model._compiled_call_impl = None  # noqa: SLF001

    def _following(self, watcher: Watcher) -> Callable[..., Any]:
        original: Callable[..., Any] = self.model._call_impl  # noqa: SLF001 - what is called otherwise
        model = self.model

        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever a model takes and returns
            # Whose weights are frozen, as a discriminator's while the generator learns, is a part of the loss.
            is_frozen = not any(each.requires_grad for each in model.parameters())
            if not torch.is_grad_enabled() or is_in_backward() or is_frozen:
                return original(*args, **kwargs)
            watcher.end_step()
            if self.applied is None and not watcher.plan(self, args, kwargs):
                return original(*args, **kwargs)
            watcher.begin_step(self)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                # A script may go on without the step.
                watcher.end_step()
                raise
            if self.is_part:
                watcher.end_step()
            return result

        return call


class ScriptModels(dict[int, TrainedModel]):
    """Those that were found, by identity; one is outer where others have their steps between its forward and backward.

    Attributes:
        waited: calls of models that were left as they are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0
        self._outer: set[int] = set()

    @property
    def applied(self) -> list[Applied]:
        """The plans that were made."""
        return [each.applied for each in self.values() if each.applied is not None]

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is waited for."""
        return len(self.applied) == len(self) or (bool(self.applied) and self.waited >= _PATIENCE)

    def note_outer(self, models: Iterable[nn.Module]) -> None:
        """Note models whose backward is yet to run while another has its own."""
        self._outer.update(map(id, models))

    def is_outer(self, trained: TrainedModel) -> bool:
        """Whether other models have their steps between its forward and backward."""
        return id(trained.model) in self._outer

    def others(self, trained: TrainedModel) -> list[TrainedModel]:
        """Return all others."""
        return [each for each in self.values() if each is not trained]

    def is_time(self, trained: TrainedModel, *, is_pending: bool) -> bool:
        """Whether a model may be planned: all are known, and so is what those take that run between.

        `is_pending`: whether something was called whose backward is yet to run.
        """
        if self.waited >= _PATIENCE:
            return True
        if not self.applied and (is_pending or has_untrained([each.model for each in self.values()])):
            return False
        return not self.is_outer(trained) or all(
            each.applied is not None or self.is_outer(each) for each in self.values()
        )

    def part_of_others(self, trained: TrainedModel) -> float:
        """Return which part of the memory outer models may keep during a step of this one, by what they saved."""
        if self.is_outer(trained):
            return 0.0
        kept = sum(each.saved_bytes for each in self.values() if self.is_outer(each))
        return kept / max(1, kept + trained.saved_bytes)

    def taken_between(self, trained: TrainedModel) -> int:
        """Return what steps take at most between forward and backward of a model."""
        planned = (each.applied for each in self.others(trained) if each.applied is not None)
        return max((each.own_bytes for each in planned), default=0) if self.is_outer(trained) else 0


def train_separately(models: list[nn.Module]) -> bool:
    """Return whether models are several, each once, and each has an optimizer with parameters of no other."""
    known = {id(each): {id(one) for one in optimizers_of(each)} for each in models}
    if len(known) < len(models) or len(known) < 2:
        return False
    optimizers = [each for found in known.values() for each in found]
    return all(known.values()) and len(optimizers) == len(set(optimizers))
