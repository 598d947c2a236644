"""The loop of an iteration, which is the same for fake tensors, real ones, and those of a pretended GPU."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import nn

from calibration.capture.chunked_loss import loss_in_chunks
from calibration.capture.nodes import leaves_of
from calibration.capture.optimizers import make_states, updating_in_backward
from calibration.capture.program import Arguments, Program
from calibration.capture.wrapped import within_ddp
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.units import ElementType

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
        without_checkpoints: makes the model what it was before its blocks were checkpointed.
        known_optimizers: of earlier programs, with their states; of tensors that take memory none.
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
    without_checkpoints: Callable[[], None] = lambda: None
    known_optimizers: Mapping[tuple[str, bool, int], tuple[torch.optim.Optimizer, ...]] = field(default_factory=dict)

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
            return checked(self.program, self.program.loss(output))

    def _autocast(self) -> AbstractContextManager[Any]:
        return autocast_of(self.device_type, self.autocast)


def checked(program: Program, loss: object) -> torch.Tensor:
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


def autocast_of(device_type: str, narrow: ElementType | None) -> AbstractContextManager[Any]:
    return torch.autocast(device_type, getattr(torch, narrow.value)) if narrow else nullcontext()
