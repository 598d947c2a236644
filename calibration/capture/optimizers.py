"""Optimizers by name, which update all parameters at the end of an iteration, or each of them in backward."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from calibration.capture.adam8bit import EIGHT_BIT
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.training_loops import OPTIMIZERS


def make_optimizers(
    name: str, parameters: Sequence[nn.Parameter], *, foreach: bool, param_groups: int, in_backward: bool
) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizer of a name, none for `none`; in backward one for each parameter.

    It works on the lists of tensors of each of its groups with `foreach`, as PyTorch's do by default on CUDA, unless
    the name says otherwise.
    """
    of, options = OPTIMIZERS[name]
    if not of:
        return ()
    if in_backward:
        groups: list[list[dict[str, Any]]] = [[{"params": [each]}] for each in parameters]
    else:
        parts = (list(parameters[start::param_groups]) for start in range(param_groups))
        groups = [[{"params": part} for part in parts if part]]
    if of in EIGHT_BIT:
        return tuple(EIGHT_BIT[of](each) for each in groups)
    chosen = {"foreach": foreach, **options} if "fused" not in options else dict(options)
    return tuple(getattr(torch.optim, of)(each, **chosen) for each in groups)


def make_states(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Make the states of optimizers, by an update with some gradients."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for each in group["params"]:
                each.grad = torch.zeros_like(each)
        optimizer.step()
        optimizer.zero_grad()


@contextmanager
def updating_in_backward(
    optimizers: Sequence[torch.optim.Optimizer], enter: Callable[[Phase], object]
) -> Iterator[None]:
    """Make backward update each parameter as soon as it has its gradient, and free that.

    `enter` is called with each phase at its begin.
    """

    def hook(optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], None]:
        def update(_: torch.Tensor) -> None:
            enter(Phase.UPDATE)
            optimizer.step()
            optimizer.zero_grad()
            enter(Phase.BACKWARD)

        return update

    with ExitStack() as hooks:
        for optimizer in optimizers:
            (parameter,) = optimizer.param_groups[0]["params"]
            hooks.callback(parameter.register_post_accumulate_grad_hook(hook(optimizer)).remove)
        yield
