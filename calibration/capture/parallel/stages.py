"""A model cut into the stages of a pipeline.

Stages have equal numbers of blocks; where these do not divide, the first ones have one more. What has parameters and
runs before the first block belongs to the first stage, what runs behind the last block to the last stage. Each stage
runs the forward of the model: a later one with the activation that it received as the input of its first block, all but
the last until their last block returns.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from calibration.capture.blocks import blocks_of
from calibration.capture.losses import opened
from calibration.capture.parallel.tensor import on_first
from vdnnsim.errors import CaptureError

Autocast = Callable[[], AbstractContextManager[Any]]
Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of a model by position and by name."""


class Stage(nn.Module):
    """A model of which some blocks are left, and what comes before or behind them in the first or the last stage."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.received: list[torch.Tensor] = []

    def forward(self, *received: torch.Tensor, given: Given) -> Any:  # noqa: ANN401 - whatever a model returns
        """Return the activation behind the last block, or in the last stage the tensors that the model returns.

        Args:
            received: the activation of the stage before; none in the first stage.
            given: the arguments of the model.
        """
        args, kwargs = given
        self.received[:] = received
        try:
            return _tensors(self.model(*args, **kwargs))
        except _Behind as left:
            return left.activation
        finally:
            self.received.clear()


class _Behind(Exception):  # noqa: N818 - no error
    """Leaves the forward of a model behind the last block of a stage."""

    def __init__(self, activation: torch.Tensor) -> None:
        super().__init__()
        self.activation = activation


class _Received(nn.Module):
    """Stands in a later stage for a module before the blocks, as the embedding.

    Of tokens that ranks share, what runs before the blocks gets the shape of all, without memory.
    """

    def __init__(self, received: list[torch.Tensor], whole: torch.Size) -> None:
        super().__init__()
        self._received, self._whole = received, whole

    def forward(self, *_: Any, **__: Any) -> torch.Tensor:  # noqa: ANN401 - as the module's
        (received,) = self._received
        return received if received.shape == self._whole else received.new_empty(()).expand(self._whole)


@dataclass
class Order:
    """What of a model runs when.

    Attributes:
        blocks: in their order.
        before, behind: modules with parameters that run before the first block, and behind it.
        activation: the input of the first block, of tokens that ranks share those of this rank.
        whole: the shape of that before it was shared.
        results: the tensors that the model returns.
        ties: modules and names of parameters, of which the first stage has one and the last another.
    """

    blocks: list[nn.Module]
    before: list[nn.Module]
    behind: list[nn.Module]
    activation: torch.Tensor
    whole: torch.Size
    results: tuple[torch.Tensor, ...]
    ties: list[tuple[nn.Module, str]]


def order_of(model: nn.Module, given: Given, autocast: Autocast) -> Order:
    """Run forward of a model once, and note the order of its modules.

    Raises:
        CaptureError: it has no blocks, or parameters beside them.
    """
    blocks = blocks_of(model)
    within = {id(each) for block in blocks for each in block.modules()}
    found: dict[bool, dict[int, nn.Module]] = {False: {}, True: {}}
    inputs: list[torch.Tensor] = []
    sizes: list[torch.Size] = []
    hooks = []

    def note_size(x: torch.Tensor) -> torch.Tensor:
        sizes.append(x.shape)
        return x

    def note_input(x: torch.Tensor) -> torch.Tensor:
        inputs.append(x)
        return x

    for path, module in model.named_modules():
        if id(module) in within:
            continue
        names = [name for name, _ in module.named_parameters(recurse=False)]
        if names and any(id(each) in within for each in module.modules()):
            raise CaptureError(
                f"--parallel: {path or type(model).__name__}: holds {', '.join(names)} beside its blocks, expected "
                "these in modules of their own, for they belong to one stage"
            )
        if names:
            hooks.append(module.register_forward_pre_hook(lambda own, _: found[bool(inputs)].__setitem__(id(own), own)))
    for block in blocks:
        # Between the two are hooks that share tokens.
        hooks.append(block.register_forward_pre_hook(on_first(note_size), with_kwargs=True, prepend=True))
        hooks.append(block.register_forward_pre_hook(on_first(note_input), with_kwargs=True))
    args, kwargs = given
    with torch.no_grad(), autocast():
        results = _tensors(model(*args, **kwargs))
    for each in hooks:
        each.remove()
    if not inputs:
        raise CaptureError(
            f"--parallel: {type(model).__name__} runs no list of equal blocks, expected a ModuleList or Sequential of "
            "at least two modules of one class"
        )
    first, other = inputs[0].shape, next((each.shape for each in inputs if each.shape != inputs[0].shape), None)
    if other is not None:
        raise CaptureError(
            f"--parallel: {type(model).__name__}: its blocks take tensors of {list(first)} and of {list(other)}, "
            "expected a chain of blocks that take and return tensors of one shape, as the layers of a transformer"
        )
    whole = results if isinstance(results, tuple) else (results,)
    before, behind = (list(found[is_behind].values()) for is_behind in (False, True))
    ties = [*_shared(before, behind), *_shared(behind, before)]
    return Order(blocks, before, behind, inputs[0].detach(), sizes[0], whole, ties)


def _shared(modules: Iterable[nn.Module], others: Iterable[nn.Module]) -> Iterator[tuple[nn.Module, str]]:
    """Yield the parameters of modules that others have, too."""
    found = {id(each) for other in others for each in other.parameters(recurse=False)}
    for module in modules:
        yield from ((module, name) for name, each in module.named_parameters(recurse=False) if id(each) in found)


def cut(model: nn.Module, order: Order, index: int, count: int) -> tuple[Stage, list[nn.Module]]:
    """Leave of a model what one of so many stages has; return that and its blocks."""
    each, more = divmod(len(order.blocks), count)
    first = index * each + min(index, more)
    blocks = order.blocks[first : first + each + (index < more)]
    stage = Stage(model)
    others = set(map(id, order.blocks)) - set(map(id, blocks))
    before = set(map(id, order.before)) if index else set()
    behind = set(map(id, order.behind)) if index < count - 1 else set()
    for owner in list(model.modules()):
        for name, child in list(owner.named_children()):
            if id(child) in before:
                setattr(owner, name, _Received(stage.received, order.whole))
            elif id(child) in behind:
                setattr(owner, name, nn.Identity())
        for place in [at for at, child in enumerate(owner.children()) if id(child) in others][::-1]:
            del cast("nn.ModuleList | nn.Sequential", owner)[place]
    return stage, blocks


def join(stage: Stage, blocks: Sequence[nn.Module], index: int, count: int) -> None:
    """Let the first block of a stage read what was received, and the stage end behind the last."""

    def leave(_: nn.Module, __: Any, output: Any) -> None:  # noqa: ANN401 - arguments and results of a block
        raise _Behind(output[0] if isinstance(output, tuple) else output)

    if index:
        enter = on_first(lambda _: stage.received[0])
        blocks[0].register_forward_pre_hook(enter, prepend=True, with_kwargs=True)
    if index < count - 1:
        blocks[-1].register_forward_hook(leave)


def _tensors(output: Any) -> Any:  # noqa: ANN401 - whatever a model returns
    """Return what a last stage may return, for its schedule takes tensors alone: one of floats, or a tuple of such."""
    if isinstance(output, torch.Tensor):
        return output
    found = tuple(
        each for each in tree_leaves(opened(output)) if isinstance(each, torch.Tensor) and each.is_floating_point()
    )
    return found[0] if len(found) == 1 else found
