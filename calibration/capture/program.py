"""Programs to capture: a model with its inputs, loss and optimizer."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from calibration.capture.parallel.layout import Layout
from calibration.capture.request import LoopOptions

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a call."""


class Program(LoopOptions, frozen=True, kw_only=True):
    """A program to capture.

    Attributes:
        make_model: makes the model, in training mode or not, on the CPU.
        make_inputs: makes the arguments of the model's forward for one micro-batch, on the CPU.
        loss: a scalar from what forward returns.
        labels: that the loss keeps from one iteration to the next.
        sample: `image` or `sequence`.
        sample_elements: tokens of a sequence; 1 for an image.
        versions: of libraries, `torch 2.13.0, timm 1.0.1`.
        layout: over several GPUs; None for one. In a pipeline micro-batches overlap.
    """

    name: str
    make_model: Callable[[], nn.Module]
    make_inputs: Callable[[], Arguments]
    loss: Callable[[Any], torch.Tensor]
    batch_size: int
    labels: Callable[[], Iterable[torch.Tensor]] = tuple
    sample: str = "image"
    sample_elements: int = 1
    versions: str = ""
    notes: tuple[str, ...] = ()
    layout: Layout | None = None

    @property
    def has_pipeline(self) -> bool:
        """Whether it is one rank of a pipeline."""
        return self.layout is not None and self.layout.pipeline > 1

    @property
    def is_wrapped(self) -> bool:
        """Whether the user's code has wrapped the model for several GPUs."""
        return self.layout is not None and self.layout.is_given
