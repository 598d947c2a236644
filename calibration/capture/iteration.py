"""The loop of an iteration, which is the same for fake tensors, real ones, and those of a pretended GPU."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from calibration.capture.chunked_loss import loss_in_chunks
from calibration.capture.lora import LoraLinear, add_adapters
from calibration.capture.nodes import leaves_of
from calibration.capture.optimizers import make_optimizers, make_states, updating_in_backward
from calibration.capture.program import Arguments, Program
from calibration.capture.wrapped import within_ddp
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.layout import Layout
from vdnnsim.dnn.training_loops import OPTIMIZERS
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.units import ElementType, Precision

if TYPE_CHECKING:
    from calibration.capture.parallel.pipeline import Pipeline

_IMAGE_DIMENSIONS: Final = 4


@dataclass
class Iteration:
    """An iteration that can be repeated: model, optimizer, and the arguments of each micro-batch.

    Attributes:
        optimizers: none, one, or in backward one for each parameter.
        foreach: whether they work on lists of tensors by default.
        place: puts a tensor on the device, in its element type and memory format.
        autocast: the narrow type of autocast, which FSDP's own mixed precision replaces; None without it.
        pipeline: the stages of a rank of a pipeline.
        is_warm: whether forward has run, and all parameters will get gradients.
    """

    program: Program
    model: nn.Module
    optimizers: tuple[torch.optim.Optimizer, ...]
    scaler: torch.amp.GradScaler | None
    batches: tuple[Arguments, ...]
    device_type: str
    foreach: bool
    place: Callable[[torch.Tensor], torch.Tensor]
    autocast: ElementType | None = None
    held: Any = None
    pipeline: "Pipeline | None" = None
    is_warm: bool = False

    def run(self, enter: Callable[[Phase], object]) -> Any:  # noqa: ANN401 - whatever the model returns
        """Run the iteration; `enter` is called with each phase at its begin.

        Returns:
            What a script holds at its end: the loss, or in inference the output.

        Raises:
            CaptureError: the loss is no scalar that has a gradient.
        """
        if self.program.mode is Mode.INFERENCE:
            enter(Phase.FORWARD)
            with torch.no_grad(), self._autocast():
                return [self.model(*args, **kwargs) for args, kwargs in self.batches][-1]
        loss: Any = None
        in_backward = self.program.in_backward
        with updating_in_backward(self.optimizers, enter) if in_backward else nullcontext():
            if self.pipeline is not None:
                loss = self.pipeline.run(self.batches, enter)
            for number, (args, kwargs) in enumerate(() if self.pipeline else self.batches, 1):
                with self._reducing(is_last=number == len(self.batches)):
                    enter(Phase.FORWARD)
                    loss = self._loss(args, kwargs)
                    if self.program.accumulate > 1:
                        loss = loss / self.program.accumulate
                    enter(Phase.BACKWARD)
                    (self.scaler.scale(loss) if self.scaler else loss).backward()
        if in_backward:
            return loss
        enter(Phase.UPDATE)
        for optimizer in self.optimizers:
            if self.scaler:
                self.scaler.step(optimizer)
                self.scaler.update()
            else:
                optimizer.step()
        self.model.zero_grad(set_to_none=True)
        return loss

    @property
    def own_model(self) -> nn.Module:
        """The model without DistributedDataParallel around it."""
        return within_ddp(self.model)

    def of(self, program: Program, *, keeps_nothing: bool = False) -> "Iteration":
        """Return the iteration of a program with the same model, that differs in batches, loss or optimizer alone."""
        of_same = ("optimizer", "in_backward", "param_groups")
        optimizers = self.optimizers
        if any(getattr(program, each) != getattr(self.program, each) for each in of_same):
            optimizers = _make_optimizers(program, self.model, foreach=self.foreach)
            if program.in_backward:
                make_states(optimizers)
        of_batch = ("batch_size", "sample_elements", "loss")
        is_same = all(getattr(program, each) == getattr(self.program, each) for each in of_batch)
        is_warm = self.is_warm and (is_same or (keeps_nothing and program.has_labels))
        batches = _batches(program, self.place)
        return replace(self, program=program, optimizers=optimizers, batches=batches, is_warm=is_warm)

    def warm_up(self, enter: Callable[[Phase], object], *, whole: bool) -> None:
        """Make optimizer states, and what the model and the loss keep, as masks and labels.

        By an iteration, or unless that is to be `whole` by forward alone, where all parameters will get gradients.
        """
        if whole or self.program.mode is Mode.INFERENCE:
            self.run(enter)
            return
        if not self.is_warm:
            reached = frozenset[int]().union(*(leaves_of(self._loss(args, kwargs)) for args, kwargs in self.batches))
            groups = (group for each in self.optimizers for group in each.param_groups)
            self.is_warm = all(id(each) in reached for group in groups for each in group["params"])
        if self.is_warm:
            make_states([each for each in self.optimizers if not each.state])
        else:
            self.run(enter)

    def _reducing(self, *, is_last: bool) -> AbstractContextManager[Any]:
        """Reduce gradients over ranks within, or with the last micro-batch alone where the layout says so."""
        layout = self.program.layout
        if layout is None or layout.syncs:
            return nullcontext()
        model: Any = self.model
        if layout.is_replicated:
            return nullcontext() if is_last else cast("AbstractContextManager[Any]", model.no_sync())
        model.set_requires_gradient_sync(is_last)
        return nullcontext()

    def _loss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        with self._autocast(), loss_in_chunks(self.model, self.program.loss_chunks):
            output = self.model(*args, **kwargs)
            self.held = output if self.program.holds_output else None
            return _checked(self.program, self.program.loss(output))

    def _autocast(self) -> AbstractContextManager[Any]:
        return _autocast(self.device_type, self.autocast)


def _checked(program: Program, loss: object) -> torch.Tensor:
    where = f"{program.name}: the loss"
    if not isinstance(loss, torch.Tensor):
        raise CaptureError(f"{where} is a {type(loss).__name__}, expected a tensor that is a scalar")
    if loss.numel() != 1:
        raise CaptureError(f"{where} has the shape {tuple(loss.shape)}, expected a scalar")
    if not loss.requires_grad:
        raise CaptureError(
            f"{where} has no gradient, expected one that depends on a parameter that requires one; "
            "`--mode inference` captures forward alone"
        )
    return loss


def _autocast(device_type: str, narrow: ElementType | None) -> AbstractContextManager[Any]:
    return torch.autocast(device_type, getattr(torch, narrow.value)) if narrow else nullcontext()


def prepare(program: Program, model: nn.Module, device_type: str, *, foreach: bool) -> Iteration:
    """Return an iteration of a program.

    Optimizers work on lists of tensors with `foreach`, as PyTorch's do by default on CUDA.

    Raises:
        CaptureError: the optimizer is unknown, or there is no parameter to train.
    """
    half = program.precision.element_type.nbytes == 2
    dtype = getattr(torch, program.precision.element_type.value) if half else None
    device = torch.device(device_type)

    def place(tensor: torch.Tensor) -> torch.Tensor:
        placed = tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
        is_image = program.channels_last and placed.dim() == _IMAGE_DIMENSIONS
        return placed.to(memory_format=torch.channels_last) if is_image else placed

    if not program.is_wrapped:
        if program.lora:
            add_adapters(model, program.lora)
        replace_tensors(model, place, buffers=True)
        for each in model.modules():
            if isinstance(each, LoraLinear):
                for adapter in (each.first, each.second):
                    replace_tensors(adapter, torch.Tensor.float, buffers=False)
    # Parts of a model that trains may not, as frozen batch normalizations.
    if not (model.training and program.mode is Mode.TRAINING):
        model.train(program.mode is Mode.TRAINING)
    autocast, pipeline = program.precision.autocast, None
    batches: tuple[Arguments, ...] = ()
    if layout := program.layout:
        # FSDP is seconds of imports.
        from calibration.capture.parallel.shard import mesh_of, narrow_type_of, spread

        program.check_layout()
        if program.has_pipeline:
            _check_pipeline(program, layout)
            from calibration.capture.parallel.pipeline import pipelined

            autocast = None if layout.is_sharded or narrow_type_of(model) is not None else autocast
            forward_in, batches = partial(_autocast, device_type, autocast), _batches(program, place)

            def loss(output: Any) -> torch.Tensor:  # noqa: ANN401 - whatever the last stage returns
                with forward_in():
                    return _checked(program, program.loss(output))

            pipeline = pipelined(
                model, layout, program.precision, program.checkpointing, device_type, batches, forward_in, loss
            )
            model = pipeline.model
        else:
            model = spread(model, layout, program.precision, mesh_of(layout, device_type), program.checkpointing)
            autocast = None if narrow_type_of(model) is not None else autocast
    elif program.checkpointing:
        from calibration.capture.checkpointing import checkpoint_blocks

        checkpoint_blocks(model, program.checkpointing)
    optimizers = _make_optimizers(program, model, foreach=foreach) if program.mode is Mode.TRAINING else ()
    scaler = None
    if program.precision is Precision.AMP_FLOAT16 and program.mode is Mode.TRAINING:
        scaler = torch.amp.GradScaler(device_type, init_scale=1.0)  # by default, overflows would skip the first steps
        scaler.scale(torch.zeros((), device=device_type))  # which makes its scale
    # Behind the weights, as a script has them.
    batches = batches or _batches(program, place)
    return Iteration(
        program, model, optimizers, scaler, batches, device_type, foreach, place, autocast, pipeline=pipeline
    )


def _check_pipeline(program: Program, layout: Layout) -> None:
    """Refuse a loop that PyTorch's schedules do not run."""
    for is_found, what in (
        (program.mode is Mode.INFERENCE, "inference"),
        (program.in_backward, "updates in backward"),
        (program.precision is Precision.AMP_FLOAT16, "a gradient scaler"),
        (bool(program.lora), "adapters"),
    ):
        if is_found:
            raise CaptureError(f"--parallel: found {layout.text} with {what}, expected one of the two")


def _batches(program: Program, place: Callable[[torch.Tensor], torch.Tensor]) -> tuple[Arguments, ...]:
    return tuple(map_tensors(place, program.make_inputs()) for _ in range(program.accumulate))


def _make_optimizers(program: Program, model: nn.Module, *, foreach: bool) -> tuple[torch.optim.Optimizer, ...]:
    if program.optimizer not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise CaptureError(f"{program.name}: optimizer {program.optimizer!r} is unknown, expected one of {known}")
    parameters = [each for each in model.parameters() if each.requires_grad]
    if not parameters:
        raise CaptureError(f"{program.name}: no parameter requires a gradient, expected one; `--mode inference`?")
    optimizers = make_optimizers(
        program.optimizer,
        parameters,
        foreach=foreach,
        param_groups=program.param_groups,
        in_backward=program.in_backward,
    )
    if program.layout is None or program.layout.data != "zero1":
        return optimizers
    from calibration.capture.parallel.shard import partitioned

    return tuple(partitioned(each, model) for each in optimizers)


def replace_tensors(model: nn.Module, replace: Callable[[torch.Tensor], torch.Tensor], *, buffers: bool) -> None:
    """Replace the parameters of a model, shared ones by shared ones.

    `nn.Module.to` cannot change the element type of fake tensors. `replace` may return its argument.
    """
    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        named: list[tuple[str, torch.Tensor]] = list(module.named_parameters(recurse=False, remove_duplicate=False))
        if buffers:
            named += module.named_buffers(recurse=False, remove_duplicate=False)
        for name, tensor in named:
            if id(tensor) not in made:
                new = replace(tensor.detach() if isinstance(tensor, nn.Parameter) else tensor)
                if isinstance(tensor, nn.Parameter):
                    new = nn.Parameter(new, requires_grad=tensor.requires_grad)
                made[id(tensor)] = new
            setattr(module, name, made[id(tensor)])


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], arguments: Arguments) -> Arguments:
    """Return arguments with a function applied to their tensors."""
    mapped: Arguments = tree_map_only(torch.Tensor, function, arguments)
    return mapped
