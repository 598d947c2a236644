"""What is captured: a model with its inputs, loss and optimizer, and the loop that runs one iteration of it.

The loop is the same whether its tensors are fake, real, or on a pretended GPU.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision

OPTIMIZERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = MappingProxyType(
    {
        "none": ("", {}),
        "sgd": ("SGD", {"lr": 1e-3}),
        "momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
        "adam": ("Adam", {}),
        "adamw": ("AdamW", {}),
        "adagrad": ("Adagrad", {}),
        "adamax": ("Adamax", {}),
        "nadam": ("NAdam", {}),
        "radam": ("RAdam", {}),
        "rmsprop": ("RMSprop", {}),
        "sgd_fused": ("SGD", {"lr": 1e-3, "fused": True}),
        "momentum_fused": ("SGD", {"lr": 1e-3, "momentum": 0.9, "fused": True}),
        "adam_fused": ("Adam", {"fused": True}),
        "adamw_fused": ("AdamW", {"fused": True}),
    }
)
"""By name the class of `torch.optim` and its arguments beside the defaults."""

_IMAGE_DIMENSIONS: Final = 4

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Of a call: those by position, those by name."""


@dataclass(frozen=True)
class Program:
    """What is captured.

    Attributes:
        name: of the model, as the user called it.
        make_model: makes the model, in training mode or not, on the CPU.
        make_inputs: makes the arguments of the model's forward for one micro-batch, on the CPU.
        loss: a scalar from what forward returns.
        labels: those that the loss keeps from one iteration to the next, inputs as those of forward.
        optimizer: a key of `OPTIMIZERS`.
        accumulate: micro-batches before a step of the optimizer.
        channels_last: whether tensors of four dimensions lie in memory with their channels last.
        batch_size: samples of a micro-batch.
        sample: what one of the batch is, `image` or `sequence`.
        sample_elements: of a sequence, its tokens; 1 for an image.
        versions: of what the model is from, `torch 2.13.0, timm 1.0.1`.
        notes: what was assumed, in sentences.
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
    labels: Callable[[], Iterable[torch.Tensor]] = tuple
    channels_last: bool = False
    sample: str = "image"
    sample_elements: int = 1
    versions: str = ""
    notes: tuple[str, ...] = ()


@dataclass
class Iteration:
    """An iteration that can be run again: a model, its optimizer, and the arguments of each micro-batch."""

    program: Program
    model: nn.Module
    optimizer: torch.optim.Optimizer | None
    scaler: torch.amp.GradScaler | None
    batches: tuple[Arguments, ...]
    device_type: str

    def run(self, enter: Callable[[Phase], object]) -> Any:  # noqa: ANN401 - whatever the model returns
        """Run the iteration; `enter` is told each phase when it begins.

        Returns:
            What a script still holds at the end: the loss, or in inference what the model returns.

        Raises:
            CaptureError: the loss is no scalar that has a gradient.
        """
        if self.program.mode is Mode.INFERENCE:
            enter(Phase.FORWARD)
            with torch.no_grad(), self._autocast():
                return [self.model(*args, **kwargs) for args, kwargs in self.batches][-1]
        loss = None
        for args, kwargs in self.batches:
            enter(Phase.FORWARD)
            with self._autocast():
                loss = self._checked(self.program.loss(self.model(*args, **kwargs)))
            if self.program.accumulate > 1:
                loss = loss / self.program.accumulate
            enter(Phase.BACKWARD)
            (self.scaler.scale(loss) if self.scaler else loss).backward()  # type: ignore[no-untyped-call]
        enter(Phase.UPDATE)
        if self.optimizer and self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif self.optimizer:
            self.optimizer.step()
        self.model.zero_grad(set_to_none=True)
        return loss

    def _autocast(self) -> AbstractContextManager[Any]:
        narrow = self.program.precision.autocast
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

    replace_tensors(model, place, buffers=True)
    model.train(program.mode is Mode.TRAINING)
    optimizer = None
    if program.mode is Mode.TRAINING:
        optimizer = _make_optimizer(program, model, foreach=foreach)
    is_scaled = program.precision is Precision.AMP_FLOAT16 and program.mode is Mode.TRAINING
    batches = tuple(_placed(program.make_inputs(), place) for _ in range(program.accumulate))
    # At the scale that it comes to in time, infinite gradients are rare; at its first one real steps would be left out.
    scaler = torch.amp.GradScaler(device_type, init_scale=1.0) if is_scaled else None
    return Iteration(program, model, optimizer, scaler, batches, device_type)


def _make_optimizer(program: Program, model: nn.Module, *, foreach: bool) -> torch.optim.Optimizer | None:
    if program.optimizer not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise CaptureError(f"{program.name}: optimizer {program.optimizer!r} is unknown, expected one of {known}")
    parameters = [each for each in model.parameters() if each.requires_grad]
    if not parameters:
        raise CaptureError(f"{program.name}: no parameter requires a gradient, expected one; `--mode inference`?")
    name, arguments = OPTIMIZERS[program.optimizer]
    if not name:
        return None
    chosen = dict(arguments) if "fused" in arguments else {**arguments, "foreach": foreach}
    optimizer: torch.optim.Optimizer = getattr(torch.optim, name)(parameters, **chosen)
    return optimizer


def replace_tensors(model: nn.Module, replace: Callable[[torch.Tensor], torch.Tensor], *, buffers: bool) -> None:
    """Give a model other parameters; what several modules share they share afterwards.

    `nn.Module.to` would do where tensors are real: it cannot change the element type of fake ones. What is to be done
    with a tensor returns the new one, the same where that is nothing.
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


def _placed(arguments: Arguments, place: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
    placed: Arguments = tree_map_only(torch.Tensor, place, arguments)
    return placed
