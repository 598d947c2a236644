"""A plan applied to a script that knows nothing of it: its model is found by the first backward.

Until then the script runs as it is, but that what autograd saves waits on the host, so that a step which memory is too
small for is come through; afterwards each step of the model is followed.
"""

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.utils._pytree import tree_leaves

from calibration.apply.found import beside_bytes, name_of, optimizers_of, precision_of, refuse_other_kinds, trained_by
from calibration.apply.loss import LossRecorder, RecordedLoss
from calibration.apply.meanwhile import outside_of_autocast, random_numbers_kept, saving_on_host
from calibration.capture.nodes import is_in_backward
from calibration.capture.program import OPTIMIZERS
from vdnnsim.element_type import Precision
from vdnnsim.errors import CaptureError, VdnnsimError


class Applied(Protocol):
    """A plan that was made."""

    def apply(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Return the context of a step."""


Plan = Callable[..., Applied]
"""Plans for a model and its inputs, with `loss`, `precision` and `optimizer`; see `vdnnsim.api.live.plan`.

And beside `beside_bytes` on the GPU, which are none of the model's, its optimizer's or its batch's.
"""


_Shapes = list[tuple[torch.Size, torch.dtype]]


@dataclass(frozen=True, slots=True)
class _Called:
    """A module that has parameters to train, called by the script itself, what it was given and what it returned."""

    module: nn.Module
    output: int
    precision: Precision
    shapes: _Shapes


class Script:
    """Watches the process of a script.

    Args:
        plan: makes the plan.
        say: is told each line that is for people.
    """

    def __init__(self, plan: Plan, say: Callable[[str], object]) -> None:
        self._plan, self._say = plan, say
        self._watching = ExitStack()
        self._first = ExitStack()
        self._recorder: LossRecorder | None = None
        self._running: nn.Module | None = None
        self._calls: list[_Called] = []
        self._backward, self._grad = torch.autograd.backward, torch.autograd.grad
        self._step: AbstractContextManager[Any] | None = None
        self._applied: Applied | None = None
        self._loss: RecordedLoss | None = None
        self._shapes: _Shapes = []
        self._held: list[weakref.ref[torch.Tensor]] = []
        self._is_found = self._has_refused = False

    def watch(self) -> None:
        """Begin to."""
        for handle in (
            hooks.register_module_forward_pre_hook(self._enters),
            hooks.register_module_forward_hook(self._leaves, with_kwargs=True, always_call=True),
        ):
            self._watching.callback(handle.remove)
        torch.autograd.backward, torch.autograd.grad = self._runs_backward, self._runs_grad

    def leave(self) -> None:
        """Watch no longer."""
        self._watching.close()
        self._first.close()
        torch.autograd.backward, torch.autograd.grad = self._backward, self._grad

    @property
    def missed(self) -> str:
        """Why no plan was applied to a script that runs a model; empty where one was, or none was run."""
        if self._recorder is None or self._applied is not None or self._has_refused:
            return ""
        if self._is_found:
            return "there was no second step with inputs as those of the step before"
        return "no backward of a model's loss was seen"

    def _enters(self, module: nn.Module, _inputs: object) -> None:
        if self._running is not None or not torch.is_grad_enabled() or is_in_backward():
            return
        device = next((each.device for each in module.parameters() if each.requires_grad), None)
        if device is None:
            return
        if not self._is_found:
            with self._refusing():
                refuse_other_kinds(module)
        self._running = module
        if self._recorder is None:
            self._recorder = LossRecorder(device.type)
            if device.type != "cpu":
                self._first.enter_context(saving_on_host())
            self._first.enter_context(self._recorder)
        self._recorder.is_recording = False

    def _leaves(self, module: nn.Module, args: object, kwargs: object, output: object) -> None:
        if module is not self._running or self._recorder is None:
            return
        self._running = None
        with self._refusing():
            self._calls.append(
                _Called(module, self._recorder.returned(output), precision_of(module), _shapes_of(args, kwargs))
            )
        self._recorder.is_recording = True

    def _runs_backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - PyTorch's own
        if is_in_backward():
            # That of a part that is computed again.
            self._backward(tensors, *args, **kwargs)
            return
        with self._last_of_step(tensors):
            self._backward(tensors, *args, **kwargs)

    def _runs_grad(self, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
        is_last = all(isinstance(each, nn.Parameter) for each in tree_leaves(inputs)) and not is_in_backward()
        if not is_last or kwargs.get("create_graph") or kwargs.get("retain_graph"):
            # A penalty on gradients, or a step within a step.
            return self._grad(outputs, inputs, *args, **kwargs)
        with self._last_of_step(outputs):
            return self._grad(outputs, inputs, *args, **kwargs)

    @contextmanager
    def _last_of_step(self, tensors: Any) -> Iterator[None]:  # noqa: ANN401 - as above
        """Find the model of a backward that runs within, unless it is known, and end its step afterwards."""
        if self._recorder is not None and self._calls:
            with self._refusing():
                self._found(self._recorder, tensors)
        try:
            yield
        finally:
            self._end_step()

    def _found(self, recorder: LossRecorder, tensors: Any) -> None:  # noqa: ANN401
        """Find the model by the loss whose gradient is computed, and have its steps followed from the next one on."""
        loss = next(iter(tensors)) if isinstance(tensors, list | tuple) and len(tensors) == 1 else tensors
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise CaptureError("the first backward: begins at no scalar, expected a loss")
        recorded = recorder.loss(loss)
        trained = trained_by(loss)
        used = [each for each in self._calls if not trained.isdisjoint(map(id, each.module.parameters()))]
        if len(used) != 1 or recorded.outputs != {used[0].output}:
            names = ", ".join(type(each.module).__name__ for each in used) or "none"
            raise CaptureError(
                f"the first backward: its loss is made by {len(used)} calls of modules ({names}), expected one call of "
                "one model; put what is called apart into a module of its own"
            )
        (found,) = used
        model = found.module.module if isinstance(found.module, nn.parallel.DistributedDataParallel) else found.module
        self._calls.clear()
        self._is_found = True
        recorder.is_recording = False
        held = recorder.held_after()
        self._loss, self._held, self._shapes = (
            replace(recorded, held=frozenset(held)),
            list(held.values()),
            found.shapes,
        )
        model._compiled_call_impl = self._following(model, found.precision)  # noqa: SLF001 - PyTorch's own place

    def _following(self, model: nn.Module, precision: Precision) -> Callable[..., Any]:
        """Return what is called in the place of a model, where `Module.compile` would put what it made."""
        original: Callable[..., Any] = model._call_impl  # noqa: SLF001 - what is called otherwise

        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever a model takes and returns
            if not torch.is_grad_enabled() or is_in_backward():
                return original(*args, **kwargs)
            self._end_step()
            if self._applied is None:
                if _shapes_of(args, kwargs) != self._shapes:
                    # A loss is of a batch: it is found anew.
                    model._compiled_call_impl = None  # noqa: SLF001
                    return original(*args, **kwargs)
                self._watching.close()
                self._first.close()
                # It holds what the script may have given up, as labels.
                loss, self._loss = self._loss, None
                model._compiled_call_impl = None  # noqa: SLF001
                assert loss is not None, "the model was found by it"
                with self._refusing(), random_numbers_kept(), outside_of_autocast():
                    optimizers = optimizers_of(model)
                    optimizer = self._name_among(optimizers)
                    states = [value for each in optimizers for state in each.state.values() for value in state.values()]
                    # What a script holds of its output it will have given up for the next one.
                    outputs = (each() for each in self._held)
                    known = [*model.parameters(), *model.buffers(), *states, *loss.constants, *outputs]
                    beside = beside_bytes([*known, *tree_leaves((args, kwargs))])
                    self._applied = self._plan(
                        *(model, (args, kwargs)),
                        loss=loss,
                        precision=precision.value,
                        optimizer=optimizer,
                        beside_bytes=beside,
                    )
                self._say(str(self._applied))
                model._compiled_call_impl = call  # noqa: SLF001
            with self._refusing():
                step = self._applied.apply(model)
                step.__enter__()
            self._step = step
            try:
                return original(*args, **kwargs)
            except BaseException:
                # A script may go on without the step.
                self._end_step()
                raise

        return call

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def _name_among(self, optimizers: list[torch.optim.Optimizer]) -> str:
        """Return the name of the first optimizer that is known."""
        for each in optimizers:
            if name_of(each) in OPTIMIZERS:
                return name_of(each)
        if not optimizers:
            return "none"
        self._say(f"{type(optimizers[0]).__name__} is not known; the plan is made as for adamw")
        return "adamw"

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """End the script where a plan cannot be made, and say why."""
        try:
            yield
        except VdnnsimError as failure:
            self._has_refused = True
            self._say(f"no plan can be applied: {failure}")
            self._watching.close()
            sys.exit(1)


def _shapes_of(*inputs: object) -> _Shapes:
    return [(each.shape, each.dtype) for each in tree_leaves(inputs) if isinstance(each, torch.Tensor)]
