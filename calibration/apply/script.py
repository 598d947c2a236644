"""Applies plans to the models of an unchanged script, which are found by their first backward passes.

Until then saved tensors are kept on the host, so that a step which needs more memory than there is gets through.
Several models, each with an optimizer of its own as those of a GAN, get a plan each; one between whose forward and
backward others have their steps leaves memory for them.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.utils._pytree import tree_leaves

from calibration.apply.loss_recorder import LossRecorder
from calibration.apply.model_discovery import (
    LossGraph,
    UpdateWatch,
    is_updated_in_backward,
    optimizers_of,
    planned_name,
    refuse_other_kinds,
    refuse_replaced,
)
from calibration.apply.recorded_loss import DownstreamLoss, RecordedLoss
from calibration.apply.script_models import (
    Applied,
    Called,
    ScriptModels,
    TrainedModel,
    shapes_of,
    train_separately,
)
from calibration.apply.unplanned_offload import saving_on_host
from calibration.apply.user_state import outside_of_autocast, random_numbers_kept
from calibration.capture.called_models import module_name
from calibration.capture.nodes import is_in_backward
from calibration.capture.wrapped import compiles_nothing
from vdnnsim.errors import CaptureError, VdnnsimError
from vdnnsim.units import Precision

Plan = Callable[..., Applied]
"""Plans for a model and its inputs, with `loss`, `precision` and `optimizer` as of `vdnnsim.api.planning.plan`.

`beside_bytes` on the GPU are not of the model, its optimizer or its batch. Of the rest, `others` is the share of other
models; None without others. `holds_inputs` says whether the script has them still when backward begins. `known` are
tensors of the loss, which are in the plan or dropped before the step.
"""


class Script:
    """Hooks on the process of a script."""

    def __init__(self, plan: Plan, say: Callable[[str], object]) -> None:
        self._plan, self._say = plan, say
        self._watching = ExitStack()
        self._first = ExitStack()
        self._on_host = ExitStack()
        self._eagerly = ExitStack()
        self._recorder: LossRecorder | None = None
        self._running: nn.Module | None = None
        self._saved: dict[int, int] = {}
        self._calls: list[Called] = []
        self._backward, self._grad, self._compile = torch.autograd.backward, torch.autograd.grad, torch.compile
        self._step: tuple[AbstractContextManager[Any], TrainedModel] | None = None
        self._models = ScriptModels()
        self._updates: list[UpdateWatch] = []
        self._has_refused = False

    def watch(self) -> None:
        for handle in (
            hooks.register_module_forward_pre_hook(self._enters),
            hooks.register_module_forward_hook(self._leaves, with_kwargs=True, always_call=True),
        ):
            self._watching.callback(handle.remove)
        torch.autograd.backward, torch.autograd.grad = self._runs_backward, self._runs_grad
        torch.compile = self._compiled
        self._updates.append(UpdateWatch(self._models.planned, self._say))

    def leave(self) -> None:
        for each in (self._watching, self._first, self._on_host, self._eagerly):
            each.close()
        torch.autograd.backward, torch.autograd.grad = self._backward, self._grad
        torch.compile = self._compile
        while self._updates:
            self._updates.pop().leave()

    @property
    def missed(self) -> str:
        """Why no plan was applied; empty if one was, or no model ran."""
        if self._recorder is None or self._models.applied or self._has_refused:
            return ""
        if self._models:
            return "there was no second step with inputs as those of the step before"
        return "no backward of a model's loss was seen"

    def end(self) -> int:
        """Return the largest excess over the plans' memory limit so far, in bytes."""
        return max((each.end() for each in self._models.applied), default=0)

    def _enters(self, module: nn.Module, _inputs: object) -> None:
        if self._running is not None or not torch.is_grad_enabled() or is_in_backward():
            return
        device = next((each.device for each in module.parameters() if each.requires_grad), None)
        if device is None:
            return
        with self._refusing():
            refuse_other_kinds(module, set(map(id, self._models.parts)))
        self._running = module
        self._saved = {}
        if self._recorder is None:
            self._recorder = LossRecorder(device.type)
            if device.type != "cpu":
                self._on_host.enter_context(saving_on_host(self._note_saved))
            self._first.enter_context(self._recorder)
        self._recorder.is_recording = False

    def _leaves(self, module: nn.Module, args: object, kwargs: object, *returned: object) -> None:
        if module is not self._running or self._recorder is None:
            return
        self._running = None
        # After a forward that raised, PyTorch calls hooks without keyword arguments.
        if returned:
            number = self._recorder.returned(module, returned[0], args, kwargs)
            with self._refusing():
                self._calls.append(Called.of(module, number, returned[0], args, kwargs, self._saved.values()))
        self._recorder.is_recording = True

    def _note_saved(self, storage: torch.UntypedStorage) -> None:
        if self._running is not None:
            self._saved[storage.data_ptr()] = storage.nbytes()

    def _compiled(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - PyTorch's own
        """Let what is compiled run eagerly, which a plan may have to follow; for its modules our hooks run twice."""
        if not compiles_nothing():
            self._say("torch.compile: what it compiles runs eagerly here, for a plan is of operators")
            self._eagerly.enter_context(torch.compiler.set_stance("force_eager"))
            warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global hooks")
        return self._compile(*args, **kwargs)

    def _runs_backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - PyTorch's own
        if is_in_backward():
            # Of a reentrant checkpoint.
            self._backward(tensors, *args, **kwargs)
            return
        with self._last_of_step(tensors):
            self._backward(tensors, *args, **kwargs)

    def _runs_grad(self, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
        is_last = all(isinstance(each, nn.Parameter) for each in tree_leaves(inputs)) and not is_in_backward()
        if not is_last or kwargs.get("create_graph") or kwargs.get("retain_graph"):
            # A gradient penalty, or a step within a step.
            return self._grad(outputs, inputs, *args, **kwargs)
        with self._last_of_step(outputs):
            return self._grad(outputs, inputs, *args, **kwargs)

    @contextmanager
    def _last_of_step(self, tensors: Any) -> Iterator[None]:  # noqa: ANN401 - as above
        """Find the models of a backward, and end its step afterwards."""
        if self._recorder is not None and self._calls:
            with self._refusing():
                self._found(self._recorder, tensors)
        try:
            yield
        finally:
            self.end_step()

    def _found(self, recorder: LossRecorder, tensors: Any) -> None:  # noqa: ANN401
        """Find models by the loss of a backward, to plan them at their next calls."""
        loss = next(iter(tensors)) if isinstance(tensors, list | tuple) and len(tensors) == 1 else tensors
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            if self._models:
                return
            raise CaptureError("the first backward: does not begin at a scalar, expected a loss")
        graph = LossGraph.of(loss)
        trained = [each for each in self._calls if not graph.parameters.isdisjoint(map(id, each.module.parameters()))]
        # Not those for their result alone. A view that was written over has another node.
        used = [each for each in trained if not graph.nodes.isdisjoint(each.nodes)] or trained
        known = set(map(id, self._models.parts))
        unknown = [each for each in used if id(each.model) not in known]
        if train_separately([each.model for each in used]):
            for each in unknown:
                self._follow(TrainedModel.of([each], DownstreamLoss()))
            self._models.note_outer(each.model for each in used[:-1])
        elif unknown and len(unknown) == len(used):
            used = self._follow_loss(used, recorder, loss)
        # Nor parts that ran before, as parametrized weights when they are made.
        own = {id(part) for each in used for part in each.model.modules()}
        self._calls = [each for each in self._calls if id(each.model) not in own]
        # This backward is between their forward and backward.
        self._models.note_outer(each.model for each in self._calls)
        if not self._calls:
            recorder.is_recording = False
            recorder.forget()

    def _follow_loss(self, used: list[Called], recorder: LossRecorder, loss: torch.Tensor) -> list[Called]:
        """Follow what makes a loss, one call of a model or several; return the calls."""
        try:
            recorded = recorder.loss(loss)
            if recorded is not None and [*recorded.outputs] == [each.output for each in used]:
                self._follow(TrainedModel.of(used, recorded))
            else:
                known = set(map(id, self._models.parts))
                pending = {each.output for each in self._calls if id(each.model) not in known}
                model, recorded, inputs = recorder.step(loss, pending)
                used = [each for each in self._calls if each.output in recorded.outputs]
                self._follow(TrainedModel.of(used, recorded, model, inputs))
        except CaptureError:
            if not self._models:
                raise
            if len(used) == 1:
                # Its records may have been dropped when another model was found.
                self._follow(TrainedModel.of(used, DownstreamLoss()))
        return used

    def _follow(self, trained: TrainedModel) -> None:
        if isinstance(trained.loss, RecordedLoss) and self._recorder is not None:
            held = self._recorder.held_after()
            trained.loss, trained.held = replace(trained.loss, held=frozenset(held)), [*held.values()]
        self._models[id(trained.model)] = trained
        trained.follow(self)

    def plan(self, trained: TrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Plan a model at its call, if it is time; return whether it has a plan."""
        with self._refusing():
            refuse_replaced(trained.model)
        is_alike = shapes_of(args, kwargs) == trained.shapes
        if not is_alike and not self._models.applied:
            # The recorded loss is of another shape.
            trained.leave()
            del self._models[id(trained.model)]
            return False
        if not is_alike or not self._models.is_time(trained, is_pending=bool(self._calls)):
            self._models.waited += 1
            self._stop_saving_on_host()
            return False
        self._watching.close()
        self._first.close()
        others = self._models.others(trained)
        # Not to hold labels that the script may drop.
        loss, trained.loss = trained.loss, None
        inputs, trained.inputs = (args, kwargs) if trained.inputs is None else (tuple(trained.inputs), {}), None
        if isinstance(loss, DownstreamLoss):
            loss = DownstreamLoss(self._models.taken_between(trained))
        trained.leave()
        with self._refusing(), random_numbers_kept(), outside_of_autocast():
            trained.applied = self._plan(
                *(trained.model, inputs),
                loss=loss,
                precision=trained.precision.value,
                optimizer=planned_name(optimizers_of(trained.model), self._say),
                in_backward=is_updated_in_backward(trained.model) and trained.precision is not Precision.AMP_FLOAT16,
                beside_bytes=trained.beside_bytes(loss, args, kwargs, inputs)
                + sum(each.gradient_bytes for each in others),
                others=self._models.part_of_others(trained) if others else None,
                holds_inputs=trained.holds_inputs,
                known=trained.of_loss(loss),
            )
        if others:
            self._say(f"{module_name(trained.model)}, one of {len(self._models)} models:")
        self._say(str(trained.applied))
        trained.follow(self)
        self._stop_saving_on_host()
        return True

    def _stop_saving_on_host(self) -> None:
        """Stop keeping saved tensors on the host, once all models have a plan."""
        if self._models.is_settled:
            self._on_host.close()

    def begin_step(self, trained: TrainedModel) -> None:
        assert trained.applied is not None, "it was made"
        with self._refusing():
            step = trained.applied.apply(trained.model)
            step.__enter__()
        self._step, trained.begun = (step, trained), 0

    def end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step[1].begun = 0
            step[0].__exit__(None, None, None)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """End the script with the reason why no plan can be made."""
        try:
            yield
        except VdnnsimError as failure:
            self._has_refused = True
            self._say(f"no plan can be applied: {failure}")
            self._watching.close()
            sys.exit(1)
