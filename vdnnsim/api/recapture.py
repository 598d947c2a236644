"""Captures that can be made again: of the same model at another batch size, for another card, or in another loop."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import CaptureError

_OPTIONS: Final = (
    *("mode", "precision", "optimizer", "lora", "accumulate", "in-backward", "param-groups", "loss-chunks", "parallel"),
    *("channels-last", "checkpointing", "batch", "image", "tokens", "inputs", "real", "compile"),
)
_OPTION: Final = re.compile(rf"(?<![\w-])--({'|'.join(_OPTIONS)})\b")
"""Of the command, which are arguments of the function."""

_BOTH: Final = re.compile(r"`?--[\w-]+[^,]*, in Python ([^,]+), ")
"""The option and the argument, where a message has both."""


@dataclass(frozen=True, slots=True)
class Again:
    """How a step was captured.

    Attributes:
        capture: of a batch size, None for that of the inputs as they were given, and of words of `vdnnsim.capture`.
        words: of the step.
        batch_size: of the step, as `capture` takes it.
        any_batch: whether it can be captured at others.
        any_length: whether it can be captured on sequences of other lengths, by the word `tokens`.
        by_card: what was captured for other cards, by their compute capability.
    """

    capture: Callable[..., CapturedStep]
    words: Mapping[str, Any]
    batch_size: int | None
    any_batch: bool
    any_length: bool = False
    by_card: "dict[tuple[int, int], tuple[CapturedStep, Again]]" = field(default_factory=dict)

    def at(self, batch_size: int | None, **changes: Any) -> "tuple[CapturedStep, Again]":  # noqa: ANN401
        """Return a step of some other words, and how it was captured."""
        words = {**self.words, **changes}
        try:
            step = self.capture(batch_size, **words)
        except CaptureError as failure:
            # Frames of ours between them say nothing to a user.
            raise CaptureError(_in_python(str(failure))) from failure.__cause__
        return step, replace(self, words=words, batch_size=batch_size, by_card={})

    def for_card(self, step: CapturedStep, compute_capability: tuple[int, int]) -> "tuple[CapturedStep, Again]":
        """Return the step for a card, captured anew where operations may be others there, and how it was captured."""
        from calibration.capture.card_classes import class_of_card

        if compute_capability not in self.by_card:
            words = {"compute_capability": compute_capability}
            captured_for = step.compute_capability
            if captured_for is None or class_of_card(step, captured_for) != class_of_card(step, compute_capability):
                self.by_card[compute_capability] = self.at(self.batch_size, **words)
            else:
                same = msgspec.structs.replace(step, device="cuda {}.{}".format(*compute_capability))
                self.by_card[compute_capability] = same, replace(self, words={**self.words, **words}, by_card={})
        return self.by_card[compute_capability]


def _in_python(message: str) -> str:
    """Return a message with arguments of `vdnnsim.capture` where it has options of the command."""
    return _OPTION.sub(lambda found: found[1].replace("-", "_"), _BOTH.sub(r"\1 ", message))


def of_name(
    model: str,
    batch: int | None,
    loss: Callable[[Any], Any] | None,
    words: Mapping[str, Any],
    **others: Any,  # noqa: ANN401
) -> Again:
    """Return captures of a model by name or file; `others` are fields of a request beside `words`.

    Raises:
        CaptureError: it has a loss of the caller's, or no batch.
    """
    from calibration.capture.isolation import captured
    from calibration.capture.request import Request

    if (inputs := others.get("inputs")) is not None and not isinstance(inputs, str):
        raise CaptureError(
            f"inputs: found {type(inputs).__name__} for {model}, a model by name or file, expected FILE.py:NAME, a "
            "function of the batch size that returns its arguments; or the model itself with these inputs"
        )
    if loss is not None:
        raise CaptureError(f"loss: {model} is captured in a process of its own, expected a model that has its loss")
    if batch is None:
        raise CaptureError(f"batch: {model} has none by default, expected an integer from 1 on")

    def capture(batch_size: int, **words: Any) -> CapturedStep:  # noqa: ANN401
        return captured(Request(model=model, batch_size=batch_size, **{**others, **words}))[0]

    return Again(capture, words, batch, any_batch=True, any_length=others.get("image") is None)


def of_object(
    model: Any,  # noqa: ANN401  # PyTorch is not imported here
    inputs: Any,  # noqa: ANN401
    batch: int | None,
    loss: Callable[[Any], Any] | None,
    words: Mapping[str, Any],
    *,
    real: bool,
) -> Again:
    """Return captures of a model in Python; at other batch sizes where `batch` is that of the inputs.

    Raises:
        CaptureError: it is to be compiled with real tensors.
        DeviceError: PyTorch is missing.
    """
    from calibration.availability import require_torch

    require_torch("capture")
    from calibration.capture.object_capture import captured_object, resized
    from calibration.capture.program import CaptureDevice

    if words["compiled"] and real:
        raise CaptureError("compile: found with real tensors, expected real=False")

    def capture(
        batch_size: int | None,
        compute_capability: tuple[int, int],
        *,
        compiled: bool,
        **words: Any,  # noqa: ANN401
    ) -> CapturedStep:
        device = CaptureDevice(real=real, compiled=compiled, compute_capability=compute_capability)
        if batch_size == batch:
            return captured_object(model, inputs, loss=loss, batch_size=batch, device=device, **words)[0]
        assert batch is None, "the batch of inputs"
        sized = resized(inputs, batch_size or 0)
        return captured_object(model, sized, loss=loss, batch_size=None, device=device, **words)[0]

    return Again(capture, words, batch, any_batch=batch is None)
