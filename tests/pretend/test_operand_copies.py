"""Copies of operands by rule, beside what PyTorch's kernels allocate and free on a pretended GPU."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch._ops import OpOverload

from calibration.capture.operand_copies import copied_operands, temporary_bytes
from calibration.capture.schemas import OperatorMode, name_of, tensors_in

pytestmark = pytest.mark.pretend

Tensor = torch.Tensor
_OF_CUDNN = ("convolution", "convolution_backward")
"""Their workspaces are allocated as well, so that they are held to their copies from below."""


class Copies(OperatorMode):
    """By operator what it allocates beside its results, and what of it are copies by rule."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[str, int, int]] = []

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if func.is_view:
            return func(*args, **kwargs)
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        torch.cuda.reset_peak_memory_stats()
        out = func(*args, **kwargs)
        stats = torch.cuda.memory_stats()
        known = {each.untyped_storage()._cdata for each in tensors_in((args, kwargs))}  # noqa: SLF001 - its identity
        made = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors_in(out)}  # noqa: SLF001
        results = sum(nbytes for each, nbytes in made.items() if each not in known)
        beside = stats["requested_bytes.all.peak"] - before - results
        copied = sum(each.nbytes for each, _ in copied_operands(func, args, kwargs))
        self.found.append((name_of(func), beside, temporary_bytes(func, args, copied)))
        return out


def images(*, channels_last: bool = False) -> Tensor:
    order = torch.channels_last if channels_last else torch.contiguous_format
    return torch.zeros(4, 32, 16, 16, device="cuda").to(memory_format=order).requires_grad_()


def of_rows(x: Tensor) -> Tensor:
    """Normalize pixels, as ConvNeXt does."""
    weight = torch.ones(32, device="cuda", requires_grad=True)
    return nn.functional.layer_norm(x.permute(0, 2, 3, 1), (32,), weight, weight).permute(0, 3, 1, 2)


def of_groups(x: Tensor) -> Tensor:
    return nn.GroupNorm(4, 32, device="cuda")(x)  # type: ignore[no-any-return]


def of_halves(x: Tensor) -> Tensor:
    """Convolve halves of channels, as MixNet does."""
    first, second = x.chunk(2, 1)
    convolve = nn.Conv2d(16, 16, 3, device="cuda")
    return convolve(first) + convolve(second)  # type: ignore[no-any-return]


def of_a_turned_gradient(x: Tensor) -> Tensor:
    """The gradient of a convolution lies as N, H, W, C, its images as N, C, H, W."""
    return of_rows(nn.Conv2d(32, 32, 3, device="cuda")(x))


def of_columns(x: Tensor) -> Tensor:
    return (x.transpose(2, 3).softmax(-1) * x).log_softmax(1).transpose(1, 2).softmax(-1)


def of_a_pool(x: Tensor) -> Tensor:
    return nn.functional.max_pool2d(x.chunk(2, 1)[0], 2)


def of_a_shift(x: Tensor) -> Tensor:
    return x.transpose(1, 2).roll((1, 1), (2, 3))


CASES: dict[str, Callable[[Tensor], Tensor]] = {
    each.__name__: each
    for each in (of_rows, of_groups, of_halves, of_a_turned_gradient, of_columns, of_a_pool, of_a_shift)
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_copies_are_those_that_kernels_make(name: str, *, channels_last: bool) -> None:
    """Beside them kernels allocate sums and indices of less than 4 KiB, and those of cuDNN a workspace.

    What is allocated besides is short of the gradient of a bias, 4 B for each of up to 32 channels, where that is made
    after the copies are freed.
    """
    x = images(channels_last=channels_last)
    with Copies() as copies:
        CASES[name](x).square().sum().backward()  # type: ignore[no-untyped-call]
    assert any(copied for _, _, copied in copies.found) or name in ("of_rows", "of_groups")
    for operator, beside, copied in copies.found:
        assert copied <= beside + 32 * 4, operator
        assert operator in _OF_CUDNN or beside - copied < 4096, operator
