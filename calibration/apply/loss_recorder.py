"""Records the functions and models that compute a script's loss, to call them with other tensors."""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from calibration.apply.recorded_loss import (
    GIVEN,
    USED,
    Given,
    Made,
    RecordedCall,
    RecordedLoss,
    RecordedStep,
    leaves_of_output,
)
from calibration.capture.called_models import CalledModels, results_of
from calibration.capture.wrapped import unwrapped
from vdnnsim.errors import CaptureError

_MOST_CALLS = 10_000
"""Limit of recorded calls; more are of no loss."""
_UNSEEN = "the loss: how it is made was not seen, expected functions of PyTorch applied to the output of the model"


class LossRecorder(TorchFunctionMode):
    """Records calls of PyTorch's functions and their results while `is_recording`."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.is_recording = False
        self._device_type = device_type
        self._calls: dict[int, RecordedCall] = {}
        self._numbers = count()
        self._given: dict[int, Given] = {}
        self._made: dict[int, Made] = {}
        # Held, so that identities stay unique.
        self._kept: list[Any] = []

    def returned(self, module: nn.Module, output: Any, args: Any, kwargs: Any) -> int:  # noqa: ANN401 - as of forward
        """Note a call of a model, and return its number."""
        taken, named = tree_map_only(torch.Tensor, self._passed, (tuple(args), dict(kwargs)))
        is_narrow = torch.is_autocast_enabled(self._device_type)
        call = RecordedCall(module, taken, named, torch.is_grad_enabled(), is_narrow, len(leaves_of_output(output)))
        return self._note(call, results_of(module, output))

    def _passed(self, tensor: torch.Tensor) -> "Made | Given | torch.Tensor":
        if tensor.requires_grad and (id(tensor) in self._made or isinstance(tensor, nn.Parameter)):
            return self._made.get(id(tensor), tensor)
        found = self._given.get(id(tensor))
        if found is None or not found.is_of(tensor):
            found = self._given[id(tensor)] = Given(tensor, self._made.get(id(tensor)))
        return found

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
        call = RecordedCall(func, taken, named, torch.is_grad_enabled(), is_narrow)
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        was_trained = first is not None and first.requires_grad
        result = func(*args, **kwargs)
        leaves = tree_leaves(result)
        if func is torch.Tensor.__setitem__:
            call, leaves = replace(call, func=_assigned), [first]
        if first is not None and first.grad_fn and not was_trained and id(first) not in self._made:
            # Made before the first call, as a buffer for results: replayed, each step writes to one of its own.
            kind = {"dtype": first.dtype, "device": first.device}
            self._note(replace(call, func=torch.zeros, args=(tuple(first.shape),), kwargs=kind), [first])
            call = replace(call, args=(self._made[id(first)], *call.args[1:]))
        if any(isinstance(each, torch.Tensor) for each in leaves):
            if len(self._calls) >= _MOST_CALLS:
                self.forget()
            self._note(call, leaves)
        return result

    def loss(self, tensor: torch.Tensor) -> "RecordedLoss | None":
        """Return a loss of the output of one call of a model; None where it is made of more, as of several calls.

        Raises:
            CaptureError: how it is made was not recorded.
        """
        target = self._target(tensor)
        calls = self._calls_of(target, follows_models=False)
        models = {number: each for number, each in calls.items() if each.is_of_model}
        functions = {number: each for number, each in calls.items() if not each.is_of_model}
        read = [target, *(leaf for each in functions.values() for leaf in each.leaves)]
        from_models = (each for each in read if isinstance(each, Made) and each.call in models)
        keeps = any(each.leaf >= models[each.call].results for each in from_models)
        if keeps or len(models) > 1 or any(each.trains(leaf) for each in functions.values() for leaf in each.leaves):
            return None
        return RecordedLoss(self._device_type, functions, target, frozenset(models))

    def step(
        self, tensor: torch.Tensor, pending: AbstractSet[int]
    ) -> "tuple[CalledModels, RecordedStep, list[torch.Tensor]]":
        """Return models with a loss that calls them, and the tensors that the script passes to them.

        Raises:
            CaptureError: how it is made was not recorded, or it is made of a tensor with a gradient that no model made,
                or by calls that are not `pending`, whose backward has run.
        """
        target = self._target(tensor)
        models = {
            id(each.func): each.func for each in self._calls_of(target).values() if isinstance(each.func, nn.Module)
        }
        calls = self._calls_of(target, own=models)
        given, used, places = list[Given](), list[nn.Parameter](), dict[int, Made]()
        for each, leaf in ((one, leaf) for one in calls.values() for leaf in one.leaves):
            passed = leaf if isinstance(leaf, Given) else self._given.get(id(leaf)) if each.trains(leaf) else None
            if passed is not None and passed.has_maker:
                raise _outside(passed.tensor(), is_leaf=False)
            if passed is not None and passed.made is not None and passed.made.call in calls:
                places[id(leaf)] = passed.made
            elif passed is not None:
                if passed not in given:
                    given.append(passed)
                places[id(leaf)] = Made(GIVEN, given.index(passed))
            elif each.trains(leaf) and not isinstance(leaf, nn.Parameter):
                raise _outside(leaf, is_leaf=leaf.is_leaf)
            elif each.trains(leaf) and id(leaf) not in places:
                places[id(leaf)] = Made(USED, len(used))
                used.append(leaf)
        replayed = {number: each.replaying(places, [*models]) for number, each in calls.items()}
        outputs = frozenset(number for number, each in calls.items() if each.is_of_model)
        if not outputs <= pending:
            raise CaptureError("the loss: is made by calls that another backward trained, expected calls of its own")
        inputs = [each.tensor() for each in given]
        trained = tuple(each.requires_grad for each in inputs)
        step = RecordedStep(self._device_type, replayed, target, outputs, trained=trained)
        parts = CalledModels(map(unwrapped, models.values()), used)
        return parts, step, inputs

    def _target(self, loss: torch.Tensor) -> Made:
        target = self._made.get(id(loss))
        if target is None or not any(each.is_of_model for each in self._calls_of(target).values()):
            raise CaptureError(_UNSEEN)
        return target

    def _calls_of(
        self, made: Made, *, follows_models: bool = True, own: Mapping[int, object] | None = None
    ) -> dict[int, RecordedCall]:
        """Return the calls that made a tensor; of what models were passed without a gradient those of `own` models."""
        calls: dict[int, RecordedCall] = {}
        wanted = [made.call]
        while wanted:
            number = wanted.pop()
            if number in calls:
                continue
            if number not in self._calls:
                # Of records that were dropped.
                raise CaptureError(_UNSEEN)
            calls[number] = call = self._calls[number]
            for leaf in call.leaves if follows_models or not call.is_of_model else ():
                if isinstance(leaf, Made):
                    wanted.append(leaf.call)
                elif own and isinstance(leaf, Given) and leaf.made is not None:
                    models = [each for each in self._calls_of(leaf.made).values() if each.is_of_model]
                    wanted += [leaf.made.call] if models and all(id(each.func) in own for each in models) else []
        return dict(sorted(calls.items()))

    def held_after(self) -> dict[Made, "weakref.ref[torch.Tensor]"]:
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
        self._given.clear()
        self._made.clear()
        self._kept.clear()

    def _note(self, call: RecordedCall, leaves: Sequence[Any]) -> int:
        number = next(self._numbers)
        self._calls[number] = call
        for at, each in enumerate(leaves):
            if isinstance(each, torch.Tensor):
                self._made[id(each)] = Made(number, at)
        self._kept.append(leaves)
        return number


def _assigned(tensor: torch.Tensor, where: Any, values: Any) -> torch.Tensor:  # noqa: ANN401 - as PyTorch takes them
    tensor[where] = values
    return tensor


def _outside(tensor: torch.Tensor, *, is_leaf: bool) -> CaptureError:
    right = "an nn.Parameter" if is_leaf else "forward to return it as well, or that it is made after it"
    return CaptureError(
        f"the loss: is made of a tensor of shape {tuple(tensor.shape)} that has a gradient and that the model did not "
        f"return, expected {right}"
    )
