"""Tensors outside of a captured model: what a capture may not leave in them.

A capture runs a copy of the model. What its forward or loss reaches beside the copy is the user's, and trains later.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from vdnnsim.errors import CaptureError

_Kind = TypeVar("_Kind", bound=torch.Tensor)


def existing(kind: type[_Kind]) -> list[_Kind]:
    """Return all tensors of a class that are alive."""
    return [each for each in gc.get_objects() if issubclass(type(each), kind)]


@contextmanager
def refusing_gradients(model: object) -> Iterator[None]:
    """Restore the gradients of tensors that existed before; `model` is that of which a copy is captured.

    Raises:
        CaptureError: one got a gradient.
    """
    leaves = [each for each in existing(torch.Tensor) if _is_trained(each)]
    before = [(each, each.grad, _version(each)) for each in leaves]
    given = []
    try:
        yield
    finally:
        for each, gradient, version in before:
            if each.grad is not gradient or _version(each) != version:
                given.append(each)
                each.grad = gradient
    if not given:
        return
    names = {id(each): name for name, each in model.named_parameters()} if isinstance(model, nn.Module) else {}
    if name := names.get(id(given[0])):
        raise CaptureError(
            f"model: {name} gets a gradient beside the module, as by a method that was kept from before; a capture "
            "runs a copy, expected a forward that reaches its parameters by `self`"
        )
    raise CaptureError(
        f"model: forward or the loss gives a gradient to a tensor of shape {tuple(given[0].shape)} that is not "
        "the model's parameter, expected a loss of the model's output; put both into one module"
    )


def _is_trained(tensor: torch.Tensor) -> bool:
    try:
        return tensor.is_leaf and tensor.requires_grad
    except RuntimeError:
        # A view that was made without gradients, of what was written with them since: PyTorch refuses any use.
        return False


def _version(leaf: torch.Tensor) -> int:
    """Return how often the gradient of a leaf was written in place."""
    return 0 if leaf.grad is None else leaf.grad._version  # noqa: SLF001 - PyTorch has no public one
