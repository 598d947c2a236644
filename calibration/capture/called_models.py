"""Models that a script calls one by one for one loss, and the calls of models in a step."""

from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from calibration.capture.losses import opened
from calibration.capture.nodes import is_in_backward


class CalledModels(nn.Module):
    """Models as one, whose loss calls them; `used` are parameters of theirs or others that the loss reads itself."""

    def __init__(self, parts: Iterable[nn.Module], used: Iterable[nn.Parameter]) -> None:
        super().__init__()
        self.parts, self.used = nn.ModuleList(parts), nn.ParameterList(used)

    def forward(self, *given: torch.Tensor) -> tuple["CalledModels", Sequence[torch.Tensor]]:
        """Return what the loss needs to call the models; `given` are tensors that the script passes to them."""
        return self, given

    def _get_name(self) -> str:
        return " and ".join(type(each).__name__ for each in self.parts)


def called_in(model: nn.Module) -> Sequence[nn.Module]:
    """Return the modules that a loop calls: the model itself, or those that are called one by one."""
    return [*model.parts] if isinstance(model, CalledModels) else [model]


def module_name(model: nn.Module) -> str:
    name: str = model._get_name()  # type: ignore[no-untyped-call]  # noqa: SLF001 - its class, or what it says
    return name


def results_of(module: nn.Module, output: Any) -> list[Any]:  # noqa: ANN401 - whatever a model returns
    """Return the leaves of an output, then tensors with gradients that the module keeps, as a balancing loss."""
    kept = (each for part in module.modules() for each in tree_leaves(vars(part)))
    return [*tree_leaves(opened(output)), *(each for each in kept if isinstance(each, torch.Tensor) and each.grad_fn)]


@contextmanager
def noting_calls(model: nn.Module, records: Sized) -> Iterator[list[range]]:
    """Yield the operations of each call of forward, outside of backward, where a checkpoint runs it again."""
    found: list[range] = []
    begun: list[int] = []

    def enter(*_: object) -> None:
        begun.append(len(records))

    def leave(*_: object) -> None:
        begin = begun.pop()
        if not begun and not is_in_backward() and torch.is_grad_enabled():
            found.append(range(begin, len(records)))

    with ExitStack() as stack:
        for each in called_in(model):
            stack.enter_context(each.register_forward_pre_hook(enter, prepend=True))
            stack.enter_context(each.register_forward_hook(leave))
        yield found
