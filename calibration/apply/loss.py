"""Records the functions that compute a script's loss from the output of its model, to call them with other tensors."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from calibration.capture.layouts import copied
from calibration.capture.losses import opened
from vdnnsim.errors import CaptureError

_MOST_CALLS = 10_000
"""Limit of recorded calls; more are of no loss."""
_UNSEEN = "the loss: how it is made was not seen, expected functions of PyTorch applied to the output of the model"


@dataclass(frozen=True, slots=True)
class _Made:
    """A tensor returned by a call; `call` below 0 is one of a model."""

    call: int
    leaf: int


@dataclass(frozen=True, slots=True)
class _Call:
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    has_gradients: bool
    is_narrow: bool


class LossRecorder(TorchFunctionMode):
    """Records calls of PyTorch's functions and their results while `is_recording`."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.is_recording = False
        self._device_type = device_type
        self._calls: list[_Call] = []
        self._outputs = 0
        self._made: dict[int, _Made] = {}
        # Held, so that identities stay unique.
        self._kept: list[Any] = []

    def returned(self, output: Any) -> int:  # noqa: ANN401 - whatever a model returns
        """Note the output of a model, and return its number."""
        self._outputs += 1
        self._note(-self._outputs, _leaves(output))
        return -self._outputs

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        kwargs = kwargs or {}
        if not self.is_recording:
            return func(*args, **kwargs)
        taken, named = tree_map_only(
            torch.Tensor, lambda each: self._made.get(id(each), each), (tuple(args), dict(kwargs))
        )
        is_narrow = torch.is_autocast_enabled(self._device_type)
        call = _Call(func, taken, named, torch.is_grad_enabled(), is_narrow)
        result = func(*args, **kwargs)
        leaves = tree_leaves(result)
        if any(isinstance(each, torch.Tensor) for each in leaves):
            if len(self._calls) >= _MOST_CALLS:
                self.forget()
            self._calls.append(call)
            self._note(len(self._calls) - 1, leaves)
        return result

    def loss(self, tensor: torch.Tensor) -> "RecordedLoss":
        """Return the calls that made a tensor from outputs of models.

        Raises:
            CaptureError: they were not recorded, or use parameters as well.
        """
        target = self._made.get(id(tensor))
        if target is None:
            raise CaptureError(_UNSEEN)
        wanted, outputs = {target.call}, set[int]()
        calls: dict[int, _Call] = {}
        while wanted:
            number = wanted.pop()
            if number < 0:
                outputs.add(number)
                continue
            calls[number] = self._calls[number]
            for each in tree_leaves((calls[number].args, calls[number].kwargs)):
                if isinstance(each, _Made) and each.call not in calls:
                    wanted.add(each.call)
                elif isinstance(each, torch.Tensor) and each.requires_grad and calls[number].has_gradients:
                    right = "what is made of it" if each.is_leaf else "it"
                    raise CaptureError(
                        f"the loss: is made of a tensor of shape {tuple(each.shape)} that has a gradient and that the "
                        f"model did not return, expected forward to return {right} as well"
                    )
        if not outputs:
            raise CaptureError(_UNSEEN)
        return RecordedLoss(self._device_type, dict(sorted(calls.items())), target, frozenset(outputs))

    def held_after(self) -> dict[_Made, "weakref.ref[torch.Tensor]"]:
        """Drop all records, and return the tensors that the script still holds."""
        alive = {
            self._made[id(each)]: weakref.ref(each)
            for leaves in self._kept
            for each in leaves
            if isinstance(each, torch.Tensor)
        }
        self.forget()
        return {made: tensor for made, tensor in alive.items() if tensor() is not None}

    def forget(self) -> None:
        self._calls.clear()
        self._made.clear()
        self._kept.clear()

    def _note(self, call: int, leaves: Sequence[Any]) -> None:
        for at, each in enumerate(leaves):
            if isinstance(each, torch.Tensor):
                self._made[id(each)] = _Made(call, at)
        self._kept.append(leaves)


@dataclass(frozen=True)
class RecordedLoss:
    """A loss of the output of a model.

    Attributes:
        held: tensors that the script holds while backward runs; so does this until the next call.
    """

    _device_type: str
    _calls: dict[int, _Call]
    _target: _Made
    outputs: frozenset[int]
    held: frozenset[_Made] = frozenset()
    _holding: list[Any] = field(default_factory=list)

    def __call__(self, output: Any) -> torch.Tensor:  # noqa: ANN401 - whatever a model returns
        (number,) = self.outputs
        made = {number: _leaves(output)}
        for at, call in self._calls.items():
            args, kwargs = tree_map_only(_Made, lambda each: made[each.call][each.leaf], (call.args, call.kwargs))
            with ExitStack() as stack:
                stack.enter_context(torch.set_grad_enabled(call.has_gradients))
                # Without real tensors a capture is of the CPU.
                for device_type in () if call.is_narrow else {"cpu", self._device_type}:
                    stack.enter_context(torch.autocast(device_type, enabled=False))
                made[at] = tree_leaves(call.func(*args, **kwargs))
        self._holding[:] = [made[each.call][each.leaf] for each in self.held if each.call in made]
        loss: torch.Tensor = made[self._target.call][self._target.leaf]
        return loss

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
        self._holding[:] = [each for each in _leaves(output) if isinstance(each, torch.Tensor) and each.requires_grad]
        if not self._holding:
            raise CaptureError("the output: nothing of it has gradients, expected a tensor that has")
        if self.others_bytes:
            torch.zeros(self.others_bytes, dtype=torch.uint8, device=self._holding[0].device)
        return torch.stack([each.float().sum() for each in self._holding]).sum()


def _leaves(output: Any) -> list[Any]:  # noqa: ANN401
    leaves: list[Any] = tree_leaves(opened(output))
    return leaves
