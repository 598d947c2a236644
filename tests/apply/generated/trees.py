"""Models as trees of blocks, which are drawn, shown, made and shrunk."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.apply.generated.blocks import BLOCKS, STEPS, WIDTH
from tests.apply.generated.later_blocks import COMPLEX, STATEFUL, STREAMS
from tests.apply.models import Function as Of


@dataclass(frozen=True)
class Tree:
    """A block by its name, or what joins blocks."""

    name: str
    parts: "tuple[Tree, ...]" = ()

    def __str__(self) -> str:
        return f"{self.name}({'; '.join(map(str, self.parts))})" if self.parts else self.name

    def module(self) -> nn.Module:
        if not self.parts:
            return {**BLOCKS, **COMPLEX, **STATEFUL, **STREAMS}[self.name]()
        return JOINS[self.name](*(each.module() for each in self.parts))

    def smaller(self) -> "Iterator[Tree]":
        """Yield trees with a part less, or with a part in the place of what joins it."""
        for at, part in enumerate(self.parts):
            before, behind = self.parts[:at], self.parts[at + 1 :]
            if before or behind:
                yield replace(self, parts=before + behind)
            if part.parts:
                yield replace(self, parts=before + part.parts + behind)
            for each in part.smaller():
                yield replace(self, parts=(*before, each, *behind))


def _chain(*parts: nn.Module) -> nn.Module:
    return nn.Sequential(*parts)


def _residual(*parts: nn.Module) -> nn.Module:
    return Of(lambda self, each: each + self.part(each), part=nn.Sequential(*parts))


def _branches(*parts: nn.Module) -> nn.Module:
    branches = {f"branch{at}": each for at, each in enumerate(parts)}
    return Of(lambda self, each: sum(getattr(self, name)(each) for name in branches) / len(branches), **branches)


def _twice(*parts: nn.Module) -> nn.Module:
    """Weights and buffers of both are the same."""
    part = nn.Sequential(*parts)
    return Of(lambda self, each: self.part(torch.tanh(self.part(each))), part=part)


def _frozen(*parts: nn.Module) -> nn.Module:
    return nn.Sequential(*parts).requires_grad_(requires_grad=False)


def _checkpointed(*parts: nn.Module, use_reentrant: bool = False) -> nn.Module:
    def run(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
        result: Tensor = checkpoint(self.part, hidden, use_reentrant=use_reentrant)
        return result

    return Of(run, part=nn.Sequential(*parts))


def _reentrant(*parts: nn.Module) -> nn.Module:
    return _checkpointed(*parts, use_reentrant=True)


JOINS: Final[dict[str, Callable[..., nn.Module]]] = {
    "chain": _chain,
    "residual": _residual,
    "branches": _branches,
    "twice": _twice,
    "frozen": _frozen,
    "checkpointed": _checkpointed,
    "reentrantly checkpointed": _reentrant,
}
ENDS: Final = ("linear", "tanh", "transposed", "heads", "scan", "in place", "words")
"""Results that are views, that were written over, that are saved, or none of it."""


def drawn_tree(draw: Random, names: Sequence[str], later: Sequence[str] = ()) -> Tree:
    """Draw a model of some blocks: of two to six, a part joined; of later ones one or two, or none, are put in."""

    def some(least: int, most: int) -> Sequence[Tree]:
        return [Tree(draw.choice(names)) for _ in range(draw.randint(least, most))]

    parts = list(some(2, 4))
    if draw.random() < 0.7:
        join = draw.choice([each for each in JOINS if each != "chain"])
        parts.insert(draw.randint(0, len(parts)), Tree(join, tuple(some(1, 2) if join != "branches" else some(2, 2))))
    end = Tree(draw.choice(ENDS))
    for _ in range(draw.randint(0, 2) if later else 0):
        at, one = draw.randrange(len(parts)), Tree(draw.choice(later))
        if parts[at].parts:
            parts[at] = replace(parts[at], parts=(*parts[at].parts, one))
        else:
            parts.insert(at, one)
    return Tree("chain", (Tree("linear"), *parts, end))


def batch_of(samples: int) -> Tensor:
    return torch.randn(samples, STEPS, WIDTH)
