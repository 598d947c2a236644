"""The models of a script: interception of calls, order of plans, and shares of memory."""

import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from calibration.apply.model_discovery import (
    beside_bytes,
    has_untrained,
    kept_for,
    nodes_of,
    optimizers_of,
    precision_of,
    unfollowed,
)
from calibration.apply.recorded_loss import DownstreamLoss, RecordedLoss
from calibration.capture.called_models import called_in, module_name
from calibration.capture.nodes import is_in_backward
from calibration.capture.wrapped import unwrapped
from vdnnsim.errors import CaptureError, PlanWarning
from vdnnsim.units import Precision

_PATIENCE: Final = 16
"""Calls after which models with an optimizer that were not trained yet are no longer waited for."""
Shapes = list[tuple[torch.Size, torch.dtype]]


def _tensors_among(*inputs: object) -> list[torch.Tensor]:
    return [each for each in tree_leaves(inputs) if isinstance(each, torch.Tensor)]


def shapes_of(*inputs: object) -> Shapes:
    """Return shapes and types of the tensors among arguments."""
    return [(each.shape, each.dtype) for each in _tensors_among(inputs)]


@dataclass(frozen=True, slots=True)
class Called:
    """A call by the script of a module with trainable parameters.

    Attributes:
        output: its number among those of the recorder.
        nodes: of its output, by sequence numbers.
    """

    module: nn.Module
    output: int
    nodes: frozenset[int]
    precision: Precision
    shapes: Shapes
    saved_bytes: int
    _inputs: list[weakref.ref[torch.UntypedStorage]]

    @classmethod
    def of(
        cls, module: nn.Module, output: int, result: object, args: object, kwargs: object, saved: Iterable[int]
    ) -> "Called":
        tensors = _tensors_among(args, kwargs)
        if any(each.is_nested for each in tensors):
            raise CaptureError(f"{type(module).__name__}: is given nested tensors, expected padded ones, with a mask")
        shapes, inputs = shapes_of(args, kwargs), [weakref.ref(each.untyped_storage()) for each in tensors]
        return cls(module, output, nodes_of(result), precision_of(module), shapes, sum(saved), inputs)

    @property
    def model(self) -> nn.Module:
        """The module within DDP and torch.compile."""
        return unwrapped(self.module)

    @property
    def has_inputs(self) -> bool:
        """Whether any of its inputs is still there."""
        return any(each() is not None for each in self._inputs)


class Applied(Protocol):
    """A plan; `own_bytes` is the peak of a step beside its given storages."""

    own_bytes: int

    def apply(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Return the context of a step."""

    def end(self) -> int:
        """Return the largest excess over the memory limit so far, in bytes."""


class Watcher(Protocol):
    """Hooks on the script."""

    def plan(self, trained: "TrainedModel", args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Plan a model at its call, if it is time; return whether it has a plan."""

    def begin_step(self, trained: "TrainedModel") -> None:
        """Begin a step of a model."""

    def end_step(self) -> None:
        """End the running step, if there is one."""


@dataclass
class TrainedModel:
    """A trained model, or several whose calls make one loss; calls are intercepted at `Module._compiled_call_impl`.

    Attributes:
        model: within DDP.
        loss: until it is planned: the script's own, or a stand-in where other models take the output.
        inputs: of all its calls in a step; None for those of one call.
        calls: in a step.
        held: tensors that the script held after the first backward.
        holds_inputs: whether the script had the inputs still when the first backward began.
        is_part: whether its loss is computed by other models, so that its steps end with forward.
        begun: calls of the running step.
    """

    model: nn.Module
    loss: RecordedLoss | DownstreamLoss | None
    precision: Precision
    shapes: Shapes
    saved_bytes: int
    inputs: list[torch.Tensor] | None = None
    calls: int = 1
    held: list["weakref.ref[torch.Tensor]"] = field(default_factory=list)
    holds_inputs: bool = True
    applied: Applied | None = None
    is_part: bool = field(init=False)
    begun: int = field(init=False, default=0)
    _is_calling: bool = field(init=False, default=False)

    @classmethod
    def of(
        cls,
        used: Sequence[Called],
        loss: RecordedLoss | DownstreamLoss,
        model: nn.Module | None = None,
        inputs: list[torch.Tensor] | None = None,
    ) -> "TrainedModel":
        """Return the model of one call, or that of several calls with the inputs of all."""
        first = used[0]
        precision = next((each.precision for each in used if each.precision.autocast), first.precision)
        saved_bytes = sum(each.saved_bytes for each in used)
        found = cls(model or first.model, loss, precision, first.shapes, saved_bytes, inputs, len(used))
        found.holds_inputs = any(each.has_inputs for each in used)
        return found

    def __post_init__(self) -> None:
        self.is_part = isinstance(self.loss, DownstreamLoss)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of weight gradients that do not exist yet."""
        return sum(each.nbytes for each in self.model.parameters() if each.requires_grad and each.grad is None)

    def beside_bytes(self, loss: RecordedLoss | DownstreamLoss | None, *batch: object) -> int:
        """Return bytes on a GPU that are not of the model, its optimizers or its batch."""
        return beside_bytes([*kept_for(self.model), *self.of_loss(loss), *tree_leaves(batch)])

    def of_loss(self, loss: RecordedLoss | DownstreamLoss | None) -> list[Any]:
        """Return what the loss reads beside the model's output, and what the script will drop before the next step."""
        constants = loss.constants if isinstance(loss, RecordedLoss) else []
        return [*constants, *(each() for each in self.held)]

    def follow(self, watcher: Watcher) -> None:
        """Intercept its calls, and apply its plan once it has one."""
        for each in called_in(self.model):
            each._compiled_call_impl = self._following(each, watcher)  # noqa: SLF001 - PyTorch's own place

    def leave(self) -> None:
        for each in called_in(self.model):
            each._compiled_call_impl = None  # noqa: SLF001

    def _following(self, model: nn.Module, watcher: Watcher) -> Callable[..., Any]:
        original: Callable[..., Any] = model._call_impl  # noqa: SLF001 - what is called otherwise

        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever a model takes and returns
            # A frozen model is part of the loss, as a discriminator while the generator learns.
            is_frozen = not any(each.requires_grad for each in model.parameters())
            if not torch.is_grad_enabled() or is_in_backward() or is_frozen or self._is_calling:
                return original(*args, **kwargs)
            if within := unfollowed():
                warnings.warn(
                    f"{module_name(model)}: is called within {within}; such a call runs without a plan",
                    PlanWarning,
                    stacklevel=2,
                )
                return original(*args, **kwargs)
            if not 0 < self.begun < self.calls:
                watcher.end_step()
                if self.applied is None and not watcher.plan(self, args, kwargs):
                    return original(*args, **kwargs)
                watcher.begin_step(self)
            self.begun += 1
            self._is_calling = True
            try:
                result = original(*args, **kwargs)
            except BaseException:
                # The script may go on.
                watcher.end_step()
                raise
            finally:
                self._is_calling = False
            if self.is_part:
                watcher.end_step()
            return result

        return call


class ScriptModels(dict[int, TrainedModel]):
    """Models by identity; others have their steps between forward and backward of an *outer* one."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0
        self._outer: set[int] = set()

    @property
    def applied(self) -> list[Applied]:
        return [each.applied for each in self.values() if each.applied is not None]

    @property
    def parts(self) -> list[nn.Module]:
        """Modules that the script calls."""
        return [part for each in self.values() for part in called_in(each.model)]

    @property
    def is_settled(self) -> bool:
        """Whether no more plans will be made."""
        return len(self.applied) == len(self) or (bool(self.applied) and self.waited >= _PATIENCE)

    def planned(self) -> list[nn.Module]:
        """Return the models that have a plan; none while more plans will be made."""
        return [each.model for each in self.values() if each.applied is not None] if self.is_settled else []

    def note_outer(self, models: Iterable[nn.Module]) -> None:
        """Note models whose backward follows that of another."""
        self._outer.update(map(id, models))

    def is_outer(self, trained: TrainedModel) -> bool:
        """Whether other models have their steps between its forward and backward."""
        return id(trained.model) in self._outer

    def others(self, trained: TrainedModel) -> list[TrainedModel]:
        return [each for each in self.values() if each is not trained]

    def is_time(self, trained: TrainedModel, *, is_pending: bool) -> bool:
        """Whether to plan a model: all are known, and for an outer one the others have plans.

        `is_pending`: whether a call's backward has not run yet.
        """
        if self.waited >= _PATIENCE:
            return True
        if not self.applied and (is_pending or has_untrained([each.model for each in self.values()])):
            return False
        return not self.is_outer(trained) or all(
            each.applied is not None or self.is_outer(each) for each in self.values()
        )

    def part_of_others(self, trained: TrainedModel) -> float:
        """Return the share of memory that outer models keep during a step of this one, by their saved bytes."""
        if self.is_outer(trained):
            return 0.0
        kept = sum(each.saved_bytes for each in self.values() if self.is_outer(each))
        return kept / max(1, kept + trained.saved_bytes)

    def taken_between(self, trained: TrainedModel) -> int:
        """Return the peak of other models' steps between forward and backward of an outer one."""
        planned = (each.applied for each in self.others(trained) if each.applied is not None)
        return max((each.own_bytes for each in planned), default=0) if self.is_outer(trained) else 0


def train_separately(models: list[nn.Module]) -> bool:
    """Return whether there are several models, each with an optimizer of its own."""
    known = {id(each): {id(one) for one in optimizers_of(each)} for each in models}
    if len(known) < len(models) or len(known) < 2:
        return False
    optimizers = [each for found in known.values() for each in found]
    return all(known.values()) and len(optimizers) == len(set(optimizers))
