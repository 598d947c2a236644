"""Programs to capture: a model with its inputs, loss and optimizer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from calibration.capture.parallel.layout import Layout
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision

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
        layout: over several GPUs; None for one. In a pipeline micro-batches overlap.
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
    def has_pipeline(self) -> bool:
        """Whether it is one rank of a pipeline."""
        return self.layout is not None and self.layout.pipeline > 1

    @property
    def is_wrapped(self) -> bool:
        """Whether the user's code has wrapped the model for several GPUs."""
        return self.layout is not None and self.layout.is_given
