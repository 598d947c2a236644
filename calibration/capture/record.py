"""Records of dispatched operations: the call, and its storages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import TreeSpec, tree_flatten

from calibration.capture.demand import Demand
from calibration.capture.schemas import tensors_in
from calibration.capture.storages import Touch
from vdnnsim.dnn.collective import Collective
from vdnnsim.dnn.layers import Phase


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Layout of a tensor in a storage of its own."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A dispatched operation without the content of its tensors; calls are equal whatever their storages are.

    Attributes:
        leaves: its arguments, each tensor as its layout; their tree is `arguments`.
        read: number of the storage of each tensor among the leaves; None in host memory.
    """

    func: OpOverload
    leaves: tuple[object, ...]
    arguments: TreeSpec
    read: tuple[int | None, ...] = field(compare=False)
    made: tuple[int | None, ...] = field(compare=False)

    @classmethod
    def of(
        cls,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: object,
        number_of: Callable[[torch.Tensor], int | None],
    ) -> "Call":
        leaves, arguments = tree_flatten((args, dict(kwargs)))
        read, made = (tuple(map(number_of, tensors_in(each))) for each in (leaves, result))
        return cls(func, tuple(map(_without_content, leaves)), arguments, read, made)

    def renumbered(self, numbers: Mapping[int, int]) -> "Call":
        """Return it with new numbers of storages."""

        def new(storages: tuple[int | None, ...]) -> tuple[int | None, ...]:
            return tuple(None if each is None else numbers[each] for each in storages)

        return replace(self, read=new(self.read), made=new(self.made))


def _without_content(leaf: object) -> object:
    if isinstance(leaf, torch.Tensor):
        return TensorLayout(leaf.dtype, tuple(leaf.shape), leaf.stride())
    return leaf


@dataclass
class Record:
    """A dispatched operation; the roles of its operands follow when the iteration has been recorded.

    Attributes:
        operands: views that it touches.
        call: as it was dispatched; None without a tape.
        results: storages that it made, each with its position among the operator's results.
        recomputes: whether it is one of forward, recomputed in backward.
        accumulates: whether it makes or adds to the gradient of a parameter.
        node: sequence number of the node that runs it, in backward.
        overwrites: whether its result is written over its first operand if nothing holds that afterwards.
        aside: whether the program runs it on another stream than its kernels.
    """

    name: str
    module: int
    phase: Phase
    operands: list[Touch]
    results: dict[int, int]
    demand: Demand
    random: bool
    call: Call | None
    forward: int | None = None
    recomputes: bool = False
    accumulates: bool = False
    node: int | None = None
    overwrites: bool = False
    collective: Collective | None = None
    aside: bool = False
    saves: list[int] = field(default_factory=list)
