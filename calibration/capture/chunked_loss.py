"""Cross entropy over slices of the tokens: logits of one slice at a time, which backward recomputes.

The output layer of a model gives `Logits`, which have a shape and no memory. A view that leaves the classes alone is
done to the input of the layer instead; a cast, or what is done to each logit alone, as `tanh(logits / 30) * 30`, to the
logits of each slice. Cross entropy then computes slice after slice, each in a checkpoint:

    def of_part(x, y):
        return cross_entropy(head(x).float(), y, reduction="sum")

    parts = zip(hidden.chunk(8), labels.chunk(8))
    loss = sum(checkpoint(of_part, x, y, use_reentrant=False) for x, y in parts) / labels.numel()
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce as reduce_over
from typing import Any, Final, Self

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from calibration.capture.fake_tensors import replaced
from calibration.capture.lora import output_layer
from vdnnsim.errors import CaptureError

NOTE: Final = (
    "Loss: cross entropy in {} slices of the tokens, each in a checkpoint, so that logits are of one at a time"
)
_MATRIX: Final = 2
_CASTS: Final = {torch.Tensor.float: torch.float32, torch.Tensor.double: torch.float64}
_OF_EACH: Final = frozenset("tanh sigmoid clamp div mul add sub __mul__ __rmul__ __add__ __radd__ __sub__".split())
"""Functions of each logit and numbers; `/` and `*` call `div` and `mul`."""
_RESHAPES: Final = (torch.Tensor.view, torch.Tensor.reshape, torch.reshape)
_VIEWS: Final = (torch.Tensor.flatten, torch.flatten, torch.Tensor.contiguous, torch.Tensor.__getitem__)
_LOOKS: Final = frozenset(
    "dim element_size is_complex is_floating_point numel size __len__ __hash__ is_contiguous __format__".split()
)
"""Methods that read no number; attributes do not either."""
_OfLogits = Callable[[torch.Tensor], torch.Tensor]
_CROSS_ENTROPY: Final = inspect.signature(functional.cross_entropy)


@contextmanager
def loss_in_chunks(model: nn.Module, chunks: int) -> Iterator[None]:
    """Make cross entropy of the output layer's result work on so many slices of the tokens; of 1 as it is.

    Raises:
        CaptureError: the model has no output layer, or does something else with its result.
    """
    if chunks == 1:
        yield
        return
    head = output_layer(model)
    if head is None:
        raise CaptureError(f"loss_chunks: {type(model).__name__} has no linear layer, expected an output layer")
    made: list[_Head] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        made.append(_Head(head, original, chunks))
        return Logits(x, made[-1])

    original = head.forward
    with replaced(head, "forward", forward):
        yield
    if not any(each.is_used for each in made):
        raise CaptureError(
            f"loss_chunks: {type(model).__name__} has no cross entropy of the result of its output layer, expected "
            "torch.nn.functional.cross_entropy"
        )


class _Head:
    """An output layer."""

    def __init__(self, layer: nn.Module, forward: Callable[[torch.Tensor], torch.Tensor], chunks: int) -> None:
        self.layer = layer
        self.chunks = chunks
        self.is_used = False
        self._forward = forward

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        with replaced(self.layer, "forward", self._forward):
            result: torch.Tensor = self.layer(x)
        return result


class Logits(torch.Tensor):
    """The result of an output layer that was not computed.

    Attributes:
        hidden: the input of the layer, in the shape of these but for the last size.
        after: what the program does to its result, one after the other.
    """

    hidden: torch.Tensor
    head: _Head
    after: tuple[_OfLogits, ...]

    def __new__(
        cls, hidden: torch.Tensor, head: _Head, after: tuple[_OfLogits, ...] = (), cast: torch.dtype | None = None
    ) -> Self:
        """Take the input of an output layer, and the element type if it was cast."""
        weight = next(head.layer.parameters())
        # Of GPT-2 in transformers weights are transposed.
        classes: int = getattr(head.layer, "nf", weight.shape[0])
        device = hidden.device.type
        own = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        made: Self = torch.Tensor._make_wrapper_subclass(  # noqa: SLF001 - the way
            cls, (*hidden.shape[:-1], classes), dtype=cast or own, device=hidden.device, requires_grad=True
        )
        made.hidden, made.head, made.after = hidden, head, after
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Do a cast or a view to the input of the layer, and cross entropy slice by slice."""
        kwargs = kwargs or {}
        first = args[0] if args else None
        if func is functional.cross_entropy:
            return _in_chunks(**_CROSS_ENTROPY.bind(*args, **kwargs).arguments)
        # A getter of an attribute, as of a shape.
        is_look = func.__name__ == "__get__" or func.__name__ in _LOOKS
        if is_look:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        if not isinstance(first, cls):
            raise _refused(func)
        cast = _CASTS.get(func)
        if func is torch.Tensor.to and len(args) == _MATRIX and isinstance(args[1], torch.dtype) and not kwargs:
            cast = args[1]
        numbers = all(isinstance(each, int | float) for each in (*args[1:], *kwargs.values()))
        if cast or (func.__name__ in _OF_EACH and numbers):
            after = (*first.after, lambda logits: func(logits, *args[1:], **kwargs))
            return cls(first.hidden, first.head, after, cast or first.dtype)
        if func in _RESHAPES or func in _VIEWS:
            rest = _of_hidden(first, args[1:]) if func in _RESHAPES else args[1:]
            viewed = func(first.hidden, *rest, **kwargs)
            keeps = func != torch.Tensor.__getitem__ or _is_of_rows(args[1], first.dim())
            if keeps and viewed.dim() and viewed.shape[-1] == first.hidden.shape[-1]:
                return cls(viewed, first.head, first.after, first.dtype)
        raise _refused(func)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Refuse what would need the numbers."""
        raise _refused(func)


def _is_of_rows(index: Any, dimensions: int) -> bool:  # noqa: ANN401 - as Python's
    """Return whether an index of a tensor leaves its last dimension whole."""
    parts = index if isinstance(index, tuple) else (index,)
    if not all(each is ... or isinstance(each, int | slice) for each in parts):
        return False
    return parts[-1] in (..., slice(None)) or (... not in parts and len(parts) < dimensions)


def _of_hidden(logits: Logits, sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Return sizes of a shape of logits as those of their hidden ones."""
    flat = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if flat[-1] not in (-1, logits.shape[-1]):
        raise _refused(torch.Tensor.view)
    return (*flat[:-1], logits.hidden.shape[-1])


def _in_chunks(
    input: torch.Tensor,  # noqa: A002
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,  # noqa: FBT001
    ignore_index: int = -100,
    reduce: bool | None = None,  # noqa: FBT001
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Return cross entropy over slices of the tokens; its mean is over those that are not ignored."""
    is_old = size_average is not None or reduce is not None
    is_of_rows = isinstance(input, Logits) and input.dim() == _MATRIX and target.dim() == 1
    if not is_of_rows or weight is not None or is_old or reduction not in ("mean", "sum"):
        raise CaptureError(
            "loss_chunks: found a cross entropy with weights, without a reduction, or of more than two dimensions, "
            "expected the mean or the sum of cross entropies of rows of logits"
        )
    assert isinstance(input, Logits), "it is of rows"
    head, after = input.head, input.after
    head.is_used = True

    def of_part(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = reduce_over(lambda made, each: each(made), after, head(x))
        return functional.cross_entropy(
            logits, y, ignore_index=ignore_index, reduction="sum", label_smoothing=label_smoothing
        )

    parts = zip(input.hidden.chunk(head.chunks), target.chunk(head.chunks), strict=True)
    total: torch.Tensor = sum(checkpoint(of_part, x, y, use_reentrant=False) for x, y in parts)
    return total if reduction == "sum" else total / (target != ignore_index).sum()


def _refused(func: object) -> CaptureError:
    name = getattr(func, "__name__", str(func))
    return CaptureError(
        f"loss_chunks: the result of the output layer is used by {name}, expected casts, views of its rows, "
        "functions of each number and cross entropy alone"
    )
