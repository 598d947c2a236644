"""A model that a script trains, once a backward has shown it: its plan is made in a call of it, and followed then.

What is called is found where `Module.compile` would put what it made.
"""

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from calibration.apply.loss import Handed, RecordedLoss
from calibration.apply.model_discovery import beside_bytes, optimizers_of
from calibration.capture.nodes import is_in_backward
from vdnnsim.units import Precision

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
    """Who watches the script."""

    def plan(self, trained: "Trained", args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Make the plan of a model that is called, if it is time; return whether there is one."""

    def begin_step(self, trained: "Trained") -> None:
        """End the step before, and begin one of a model."""

    def end_step(self) -> None:
        """End the step that was begun last, if it has not ended."""


@dataclass
class Trained:
    """A model that is trained.

    Attributes:
        model: itself, without what DDP puts around it.
        loss: what its step ends with, until its plan is made: the script's own, or that others take the output.
        precision: in which it is called.
        shapes: of its inputs.
        saved_bytes: that autograd kept of its first forward.
        held: what the script itself still held after the first backward.
        applied: its plan, once there is one.
        is_part: whether others make of its output what it is trained by, so that a step of it is its forward.
    """

    model: nn.Module
    loss: RecordedLoss | Handed | None
    precision: Precision
    shapes: Shapes
    saved_bytes: int
    held: list["weakref.ref[torch.Tensor]"] = field(default_factory=list)
    applied: Applied | None = None
    is_part: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_part = isinstance(self.loss, Handed)

    @property
    def gradient_bytes(self) -> int:
        """What the gradients of its weights will take that are not there now."""
        return sum(each.nbytes for each in self.model.parameters() if each.requires_grad and each.grad is None)

    def beside_bytes(self, loss: RecordedLoss | Handed | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Return what is on a GPU now that is none of the model's, its optimizers' or its batch's."""
        optimizers = optimizers_of(self.model)
        states = [value for each in optimizers for state in each.state.values() for value in state.values()]
        # What a script holds of its output it will have given up for the next one.
        outputs = (each() for each in self.held)
        constants = loss.constants if isinstance(loss, RecordedLoss) else []
        known = [*self.model.parameters(), *self.model.buffers(), *states, *constants, *outputs]
        return beside_bytes([*known, *tree_leaves((args, kwargs))])

    def follow(self, watcher: Watcher) -> None:
        """Have its calls told, and followed once there is a plan."""
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
