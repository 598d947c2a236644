"""Losses of a script as functions of what its models return, which a capture calls with other tensors."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from calibration.capture.called_models import called_in, results_of
from calibration.capture.layouts import copied
from calibration.capture.losses import opened
from vdnnsim.errors import CaptureError

GIVEN, USED = -1, -2
"""In place of a call: tensors that a script passes to models, and parameters that its loss reads itself."""


@dataclass(frozen=True, slots=True)
class Made:
    """A tensor returned by a call."""

    call: int
    leaf: int


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a function, or of a model that returns so many `results`; a replayed one is called by its position."""

    func: Callable[..., Any] | int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    has_gradients: bool
    is_narrow: bool
    results: int = 0

    @property
    def leaves(self) -> list[Any]:
        return tree_leaves((self.args, self.kwargs))

    @property
    def is_of_model(self) -> bool:
        return isinstance(self.func, nn.Module)

    def trains(self, leaf: object) -> bool:
        """Whether a gradient reaches an argument that no call made."""
        return isinstance(leaf, torch.Tensor) and leaf.requires_grad and self.has_gradients

    def replaying(self, places: Mapping[int, Made], models: Sequence[int]) -> "RecordedCall":
        """Return the call with other arguments, by identity, and of a model by its position."""
        args, kwargs = tree_map_only(
            (torch.Tensor, Given), lambda each: places.get(id(each), each), (self.args, self.kwargs)
        )
        func = models.index(id(self.func)) if self.is_of_model else self.func
        return replace(self, func=func, args=args, kwargs=kwargs)


class Given:
    """A tensor that a script passes to a model, which may be dropped before the first backward."""

    def __init__(self, tensor: torch.Tensor, made: Made | None) -> None:
        self.made = made
        self._tensor = weakref.ref(tensor)
        self._trains = tensor.requires_grad
        self.has_maker = tensor.grad_fn is not None
        self._make = partial(
            torch.empty_strided, tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )

    def is_of(self, tensor: torch.Tensor) -> bool:
        return self._tensor() is tensor

    def tensor(self) -> torch.Tensor:
        """Return the tensor, or zeros in its place."""
        found = self._tensor()
        found = self._make().zero_() if found is None else found.detach()
        return found.requires_grad_(self._trains)


@dataclass(frozen=True)
class RecordedLoss:
    """A loss of the output of a model.

    Attributes:
        held: tensors that the script holds while backward runs; so does this until the next call.
    """

    _device_type: str
    _calls: dict[int, RecordedCall]
    _target: Made
    outputs: frozenset[int]
    held: frozenset[Made] = frozenset()
    _holding: list[Any] = field(default_factory=list)

    def __call__(self, output: Any) -> torch.Tensor:  # noqa: ANN401 - whatever a model returns
        (number,) = self.outputs
        return self._replayed({number: leaves_of_output(output)})

    def _replayed(self, made: dict[int, Sequence[Any]], parts: Sequence[nn.Module] = ()) -> torch.Tensor:
        tensors = [*tree_leaves(made), *(each for part in parts for each in part.parameters())]
        device = next(each.device for each in tensors if isinstance(each, torch.Tensor))
        for at, call in self._calls.items():
            args, kwargs = tree_map_only(Made, lambda each: made[each.call][each.leaf], (call.args, call.kwargs))
            args, kwargs = tree_map_only((torch.device, str), partial(self._placed, device), (args, kwargs))
            with ExitStack() as stack:
                stack.enter_context(torch.set_grad_enabled(call.has_gradients))
                # Without real tensors a capture is of the CPU.
                for device_type in () if call.is_narrow else {"cpu", self._device_type}:
                    stack.enter_context(torch.autocast(device_type, enabled=False))
                if isinstance(call.func, int):
                    made[at] = results_of(parts[call.func], parts[call.func](*args, **kwargs))
                else:
                    made[at] = tree_leaves(call.func(*args, **kwargs))
        held = (each for each in self.held if each.leaf < len(made.get(each.call, ())))
        self._holding[:] = [made[each.call][each.leaf] for each in held]
        loss: torch.Tensor = made[self._target.call][self._target.leaf]
        return loss

    def _placed(self, device: torch.device, argument: torch.device | str) -> torch.device | str:
        """Return the device of a capture in place of that of the script, on which its loss makes tensors."""
        return device if str(argument).partition(":")[0] == self._device_type else argument

    def apart(self) -> "RecordedLoss":
        """Return a copy with tensors of its own, to which it may write."""
        taken = copied({at: (each.args, each.kwargs) for at, each in self._calls.items()}, values=True)
        calls = {at: replace(self._calls[at], args=args, kwargs=kwargs) for at, (args, kwargs) in taken.items()}
        return replace(self, _calls=calls, _holding=[])

    @property
    def constants(self) -> list[torch.Tensor]:
        """Tensors that it reads beside the output, as labels."""
        leaves = (tree_leaves((each.args, each.kwargs)) for each in self._calls.values())
        return [each for found in leaves for each in found if isinstance(each, torch.Tensor)]


@dataclass(frozen=True)
class RecordedStep(RecordedLoss):
    """A loss of several calls, or of what models keep and of their parameters, as a function of `CalledModels`.

    Attributes:
        trained: of each tensor that is passed to models, whether it wants a gradient.
    """

    trained: tuple[bool, ...] = ()

    def __call__(self, output: Any) -> torch.Tensor:  # noqa: ANN401 - as above
        models, passed = output
        given = [each.detach().requires_grad_(trains) for each, trains in zip(passed, self.trained, strict=True)]
        return self._replayed({GIVEN: given, USED: [*models.used]}, called_in(models))


@dataclass(frozen=True)
class DownstreamLoss:
    """Stands for the loss of a model whose output other models take, as a generator's.

    Attributes:
        others_bytes: that these take at most before the gradient of the output is there.
    """

    others_bytes: int = 0
    _holding: list[Any] = field(default_factory=list)

    def apart(self) -> "DownstreamLoss":
        return DownstreamLoss(self.others_bytes)

    def __call__(self, output: Any) -> torch.Tensor:  # noqa: ANN401 - whatever a model returns
        """Return the sum of all outputs with gradients, which are held until the next call, as by other models."""
        self._holding[:] = [
            each for each in leaves_of_output(output) if isinstance(each, torch.Tensor) and each.requires_grad
        ]
        if not self._holding:
            raise CaptureError("the output: nothing of it has gradients, expected a tensor that has")
        if self.others_bytes:
            torch.zeros(self.others_bytes, dtype=torch.uint8, device=self._holding[0].device)
        return torch.stack([each.float().sum() for each in self._holding]).sum()


def leaves_of_output(output: Any) -> list[Any]:  # noqa: ANN401
    leaves: list[Any] = tree_leaves(opened(output))
    return leaves
