"""Inputs of a request, of a user's function or images or tokens of a size, and what a failure may say of them."""

import re
from typing import Final

import torch

from calibration.capture.layouts import copied
from calibration.capture.libraries import NamedModel
from calibration.capture.program import Arguments
from calibration.capture.request import Request
from calibration.capture.user_code import inputs_maker
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import CaptureError

_OWN_INPUTS: Final = "--inputs FILE.py:NAME, a function of the batch size that returns its arguments"
_OF_SHAPE: Final = re.compile(r"channel|\bdim|shape|size")
"""Words of PyTorch for inputs that an operator does not take."""
_IDS: Final = 2
"""Token ids for a user's model, 0 and 1."""

_FEW: Final = {1: "one number a sample", 2: "two numbers a sample"}
_OF_IMAGE: Final = "expected CxHxW for an image, as 3x224x224"


class RequestInputs:
    """Inputs from a user's function, or images or tokens of a size."""

    def __init__(self, request: Request, named: NamedModel | None) -> None:
        self._batch_size = request.batch_size
        self._is_real = request.runs
        self._arguments = named.arguments if named else None
        self.image = request.image or (named.image if named else None) or ()
        self.tokens = request.tokens or (named.tokens if named else None) or 0
        sizes = (request.batch_size, *([request.tokens] if request.tokens else []))
        self._own = inputs_maker(request.inputs, *sizes) if request.inputs else None
        if self._own is None:
            _check_sizes(request, named)
        self.sample = "sequence" if self.tokens else "image"
        self.notes = tuple(self._notes(request, named))

    def _notes(self, request: Request, named: NamedModel | None) -> list[str]:
        notes = [named.note] if named and named.note else []
        if self._own is None and request.image is None and request.tokens is None:
            size = f"{self.tokens} tokens" if self.tokens else "x".join(map(str, self.image))
            notes.append(f"inputs are of the size that {request.model} has by default: {size}")
        return notes

    def make(self) -> Arguments:
        if self._own is not None:
            own = self._own()
            return own if self._is_real else copied(own, values=False)
        if self._arguments is not None:
            return (), self._arguments(self._batch_size, self.tokens, self.image)
        if self.image:
            return (torch.randn(self._batch_size, *self.image),), {}
        return (torch.randint(_IDS, (self._batch_size, self.tokens)),), {}


def _check_sizes(request: Request, named: NamedModel | None) -> None:
    """Check that a model gets the kind of input that it takes."""
    if named is None:
        if not (request.image or request.tokens):
            raise CaptureError(
                f"{request.model}: inputs are missing, expected --image 3x224x224, --tokens 1024, or {_OWN_INPUTS}"
            )
    elif not (named.image or named.tokens):
        raise CaptureError(f"{request.model} takes neither an image nor tokens alone, expected {_OWN_INPUTS}")
    elif request.image and not named.image:
        raise CaptureError(f"--image: {request.model} takes tokens, expected --tokens")
    elif request.image and named.image and len(request.image) != len(named.image):
        found, example = ("x".join(map(str, each)) for each in (request.image, named.image))
        raise CaptureError(
            f"--image: found {found}, expected {len(named.image)} sizes for {request.model}, as {example}"
        )
    elif request.tokens and not named.tokens:
        raise CaptureError(f"--tokens: {request.model} takes images, expected --image")


def hint_of(failure: CaptureError, request: Request, *, is_first: bool) -> str:
    """Return what a failure is due to where that is the inputs of a request; empty if it is not known."""
    said, few = str(failure).partition("Error: ")[2], _FEW.get(len(request.image or ()))
    # Two numbers are what a convolution of one dimension takes, and attention.
    if is_first and few and (few == _FEW[1] or ("convolution" in str(failure) and _OF_SHAPE.search(said))):
        return f"--image {_sizes(request)} is {few}, {_OF_IMAGE}"
    if request.inputs is None and "required positional argument" in str(failure):
        return "expected --inputs FILE.py:NAME, a function of the batch size that returns all arguments"
    if request.tokens is not None and request.inputs is None and re.search(r"conv\d|convolution", str(failure)):
        return "--tokens makes indices of tokens; for a model that reads images expected --image CxHxW"
    sizes = request.image or ([request.tokens] if request.tokens else ())
    if request.layout is not None and request.layout.tensor > 1:
        return ""
    if request.inputs is None and sizes and _OF_SHAPE.search(said):
        return f"the input is {'x'.join(map(str, (request.batch_size, *sizes)))}, for others expected {_OWN_INPUTS}"
    return ""


def refuse_unbatched(request: Request, step: CapturedStep) -> None:
    """Refuse an image of two sizes where a convolution takes the batch for its channels, as PyTorch's do.

    Raises:
        CaptureError: the message has the sizes that are expected.
    """
    if request.image is None or len(request.image) != 2:
        return
    unbatched = (1, request.batch_size, *request.image)
    for each in step.operations:
        kind = step.modules[each.module].kind.rpartition(".")[2]
        if kind == "Conv2d" and any(step.tensors[one.memory].shape == unbatched for one in each.operands):
            raise CaptureError(
                f"{request.model}: --image {_sizes(request)} is {_FEW[2]}, so that a convolution took the batch of "
                f"{request.batch_size} for the channels of one image, {_OF_IMAGE}"
            )


def _sizes(request: Request) -> str:
    return "x".join(map(str, request.image or ()))
