"""Programs to capture, a model with its inputs, loss and optimizer, and for which device."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from calibration.capture.request import DEFAULT_CAPABILITY, LoopOptions
from vdnnsim.dnn.captured_step import ProgramText
from vdnnsim.dnn.layout import Layout
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a call."""


@dataclass(frozen=True)
class CaptureDevice:
    """The device of a capture.

    Attributes:
        real: whether tensors have memory.
        compute_capability: of the CUDA device for which fake tensors dispatch; None for the CPU.
        device_type: of real tensors, `cpu` or `cuda`.
        compiled: whether torch.compile compiles the model; without memory, on CUDA.
    """

    real: bool = False
    compute_capability: tuple[int, int] | None = DEFAULT_CAPABILITY
    device_type: str = "cpu"
    compiled: bool = False

    @property
    def name(self) -> str:
        if self.real and self.device_type == "cuda":
            return "cuda {}.{}".format(*torch.cuda.get_device_capability())
        if self.real or self.compute_capability is None:
            return "cpu"
        return "cuda {}.{}".format(*self.compute_capability)

    @property
    def is_cuda(self) -> bool:
        return self.name != "cpu"


class Program(LoopOptions, frozen=True, kw_only=True):
    """A program to capture.

    Attributes:
        make_model: makes the model, in training mode or not, on the CPU.
        make_inputs: makes the arguments of the model's forward for one micro-batch, on the CPU.
        loss: a scalar from what forward returns.
        labels: that the loss keeps from one iteration to the next.
        has_labels: whether these are there before the first iteration.
        sample: `image` or `sequence`.
        sample_elements: tokens of a sequence; 1 for an image.
        versions: of libraries, `torch 2.13.0, timm 1.0.1`.
        text: how the model is made, in Python.
        layout: over several GPUs; None for one. In a pipeline micro-batches overlap.
    """

    name: str
    make_model: Callable[[], nn.Module]
    make_inputs: Callable[[], Arguments]
    loss: Callable[[Any], torch.Tensor]
    batch_size: int
    labels: Callable[[], Iterable[torch.Tensor]] = tuple
    has_labels: bool = False
    sample: str = "image"
    sample_elements: int = 1
    versions: str = ""
    notes: tuple[str, ...] = ()
    text: ProgramText = ProgramText()
    layout: Layout | None = None

    def check_layout(self) -> None:
        """Refuse what a layout cannot be captured with.

        Raises:
            CaptureError: it changes a model that is wrapped, takes logits apart that are split, or needs gradients on
                the host within backward.
        """
        layout = self.layout
        if layout is None:
            return
        for name, value in (("lora", self.lora), ("checkpointing", self.checkpointing)):
            if layout.is_given and value:
                raise CaptureError(
                    f"{name}: found with {layout.text}, expected it in the function that makes the model"
                )
        if not layout.syncs and self.accumulate == 1:
            raise CaptureError(f"--parallel: found {layout.text} with one micro-batch, expected --accumulate from 2 on")
        if not layout.is_given and self.accumulate < layout.pipeline:
            raise CaptureError(
                f"accumulate: found {self.accumulate} with {layout.text}, expected at least {layout.pipeline} "
                "micro-batches, one for each stage"
            )
        if layout.tensor > 1 and self.loss_chunks > 1:
            raise CaptureError(f"loss_chunks: found with {layout.text}, whose logits are split by class")
        if layout.pipeline > 1 and self.loss_chunks > 1:
            raise CaptureError(f"loss_chunks: found with {layout.text}, whose last stage returns logits")
        for is_found, what in (
            (self.accumulate > 1 and layout.syncs, "gradients of several micro-batches, which the host would add up"),
            (self.in_backward, "updates in backward"),
            (self.precision is Precision.AMP_FLOAT16, "a gradient scaler"),
        ):
            if layout.offloads and is_found:
                raise CaptureError(f"--parallel: found {layout.text} with {what}, expected one of the two")

    @property
    def has_pipeline(self) -> bool:
        """Whether it is one rank of a pipeline."""
        return self.layout is not None and self.layout.pipeline > 1

    @property
    def micro_batches(self) -> int:
        """How many overlap or differ, and so are one step; else 1."""
        return self.accumulate if self.layout is not None and self.layout.takes_all else 1

    @property
    def is_wrapped(self) -> bool:
        """Whether the user's code has wrapped the model for several GPUs."""
        return self.layout is not None and self.layout.is_given


def precision_of(program: Program, model: nn.Module) -> Precision:
    """Return the precision of a program; where it leaves a model as it is, that of most of its parameters."""
    counts = Counter[torch.dtype]()
    for each in model.parameters():
        counts[each.dtype] += each.numel()
    narrow = {torch.bfloat16: Precision.BFLOAT16, torch.float16: Precision.FLOAT16}
    most = max(counts, key=counts.__getitem__, default=torch.float32)
    return narrow.get(most, program.precision) if program.precision is Precision.FLOAT32 else program.precision
