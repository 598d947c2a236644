"""Programs to capture, a model with its inputs, loss and optimizer, and the loop of an iteration.

The loop is the same for fake tensors, real ones, and those of a pretended GPU.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from calibration.capture.chunked_loss import loss_in_chunks
from calibration.capture.lora import LoraLinear, add_adapters
from calibration.capture.optimizers import make_optimizers, make_states, updating_in_backward
from calibration.capture.parallel.layout import Layout, check_beside
from calibration.capture.wrapped import within_ddp
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.training_loops import OPTIMIZERS
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.units import ElementType, Precision

_IMAGE_DIMENSIONS: Final = 4

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a call."""


@dataclass(frozen=True)
class Program:
    """A program to capture.

    Attributes:
        make_model: makes the model, in training mode or not, on the CPU.
        make_inputs: makes the arguments of the model's forward for one micro-batch, on the CPU.
        loss: a scalar from what forward returns.
        labels: that the loss keeps from one iteration to the next.
        accumulate: micro-batches before a step of the optimizer.
        in_backward: whether each parameter is updated in backward, once its gradient is there, which is then freed.
        param_groups: groups of parameters that the optimizer updates one after the other.
        loss_chunks: slices of the tokens whose cross entropy is computed one after the other (`chunked_loss`).
        lora: rank of adapters around linear layers, with all else frozen; 0 for none.
        channels_last: whether tensors of four dimensions lie in memory with their channels last.
        sample: `image` or `sequence`.
        sample_elements: tokens of a sequence; 1 for an image.
        holds_output: whether the script keeps what forward returned until the next forward returns, as `outputs =
            model(...)` in a loop does.
        versions: of libraries, `torch 2.13.0, timm 1.0.1`.
        checkpointing: of blocks, `full`, `selective` or of every so many; empty for none.
    """

    name: str
    make_model: Callable[[], nn.Module]
    make_inputs: Callable[[], Arguments]
    loss: Callable[[Any], torch.Tensor]
    optimizer: str
    mode: Mode
    precision: Precision
    batch_size: int
    accumulate: int = 1
    in_backward: bool = False
    param_groups: int = 1
    loss_chunks: int = 1
    lora: int = 0
    labels: Callable[[], Iterable[torch.Tensor]] = tuple
    channels_last: bool = False
    sample: str = "image"
    sample_elements: int = 1
    holds_output: bool = False
    versions: str = ""
    notes: tuple[str, ...] = ()
    layout: Layout | None = None
    checkpointing: str = ""

    @property
    def is_wrapped(self) -> bool:
        """Whether the user's code has wrapped the model for several GPUs."""
        return self.layout is not None and self.layout.is_given


@dataclass
class Iteration:
    """An iteration that can be repeated: model, optimizer, and the arguments of each micro-batch.

    Attributes:
        optimizers: none, one, or in backward one for each parameter.
        foreach: whether they work on lists of tensors by default.
        place: puts a tensor on the device, in its element type and memory format.
        autocast: the narrow type of autocast, which FSDP's own mixed precision replaces; None without it.
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
        loss = None
        in_backward = self.program.in_backward
        with updating_in_backward(self.optimizers, enter) if in_backward else nullcontext():
            for args, kwargs in self.batches:
                enter(Phase.FORWARD)
                loss = self._loss(args, kwargs)
                if self.program.accumulate > 1:
                    loss = loss / self.program.accumulate
                enter(Phase.BACKWARD)
                (self.scaler.scale(loss) if self.scaler else loss).backward()  # type: ignore[no-untyped-call]
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

    def of(self, program: Program) -> "Iteration":
        """Return the iteration of a program with the same model, that differs in batches, loss or optimizer alone."""
        of_same = ("optimizer", "in_backward", "param_groups")
        optimizers = self.optimizers
        if any(getattr(program, each) != getattr(self.program, each) for each in of_same):
            optimizers = _make_optimizers(program, self.model, foreach=self.foreach)
            make_states(optimizers)
        return replace(self, program=program, optimizers=optimizers, batches=_batches(program, self.place))

    def warm_up(self) -> None:
        """Run forward and the loss of each micro-batch, for what the model and the loss keep."""
        if self.program.mode is Mode.INFERENCE:
            self.run(lambda _: None)
            return
        for args, kwargs in self.batches:
            self._loss(args, kwargs)

    def _loss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        with self._autocast(), loss_in_chunks(self.model, self.program.loss_chunks):
            output = self.model(*args, **kwargs)
            self.held = output if self.program.holds_output else None
            return self._checked(self.program.loss(output))

    def _autocast(self) -> AbstractContextManager[Any]:
        narrow = self.autocast
        return torch.autocast(self.device_type, getattr(torch, narrow.value)) if narrow else nullcontext()

    def _checked(self, loss: object) -> torch.Tensor:
        where = f"{self.program.name}: the loss"
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
        return placed.contiguous(memory_format=torch.channels_last) if is_image else placed

    if not program.is_wrapped:
        if program.lora:
            add_adapters(model, program.lora)
        replace_tensors(model, place, buffers=True)
        for each in model.modules():
            if isinstance(each, LoraLinear):
                for adapter in (each.first, each.second):
                    replace_tensors(adapter, torch.Tensor.float, buffers=False)
    model.train(program.mode is Mode.TRAINING)
    autocast = program.precision.autocast
    if layout := program.layout:
        # FSDP is seconds of imports.
        from calibration.capture.parallel.shard import narrow_type_of, spread

        check_beside(layout, lora=program.lora, checkpointing=program.checkpointing, loss_chunks=program.loss_chunks)
        model = spread(model, layout, program.precision, device_type, program.checkpointing)
        autocast = None if narrow_type_of(model) is not None else autocast
    elif program.checkpointing:
        from calibration.capture.checkpointing import checkpoint_blocks

        checkpoint_blocks(model, program.checkpointing)
    optimizers: tuple[torch.optim.Optimizer, ...] = ()
    if program.mode is Mode.TRAINING:
        optimizers = _make_optimizers(program, model, foreach=foreach)
    is_scaled = program.precision is Precision.AMP_FLOAT16 and program.mode is Mode.TRAINING
    # With the default scale, overflows would skip the first steps.
    scaler = torch.amp.GradScaler(device_type, init_scale=1.0) if is_scaled else None
    return Iteration(
        program, model, optimizers, scaler, _batches(program, place), device_type, foreach, place, autocast
    )


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

    return tuple(map(partitioned, optimizers))


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
