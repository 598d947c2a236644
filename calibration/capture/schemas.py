"""Calls of operators: who hears of them, and what a schema says of one, which tensors it reads and which it writes."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

RECORD_STREAM: Final = torch.ops.aten.record_stream.default
"""Tells CUDA's allocator that another stream uses a tensor; its schema says that it writes to it."""


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hears of each operator that PyTorch dispatches within it, and does what is to be done."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator returns
        """Be told of an operator, as PyTorch does it."""
        if func is torch.ops.prim.device.default and isinstance(args[0], FakeTensor):
            # Four of five calls under fake tensors, and no operation.
            return args[0].fake_device
        return self.dispatch(func, args, kwargs or {})

    @abstractmethod
    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return what an operator does, or another result in its place."""


def name_of(func: OpOverload) -> str:
    """Return the name of an operator without those of its library and its overload, `convolution`."""
    return str(func._schema.name).rpartition("::")[2]  # noqa: SLF001 - PyTorch has no public one


def arguments_of(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names in the schema, those left out with their defaults."""
    bound: dict[str, Any] = {}
    for position, argument in enumerate(func._schema.arguments):  # noqa: SLF001 - PyTorch has no public one
        if position < len(args) and not argument.kwarg_only:
            bound[argument.name] = args[position]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        elif argument.has_default_value():
            bound[argument.name] = argument.default_value
    return bound


def tensors_in(value: object) -> list[torch.Tensor]:
    """Return the tensors in arguments or results, in order."""
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor)]


def operands_of(
    func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[torch.Tensor, bool]]:
    """Yield the tensors that a call is given, each with whether it is written."""
    given = arguments_of(func, args, kwargs)
    for argument in func._schema.arguments:  # noqa: SLF001
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        for tensor in tensors_in(given.get(argument.name)):
            yield tensor, is_written


def only_writes(func: OpOverload) -> bool:
    """Return whether what an operator writes in place it does not read: fills, copies, and results given to it."""
    is_out = any(argument.is_out for argument in func._schema.arguments)  # noqa: SLF001
    return is_out or name_of(func) in _OVERWRITING or is_random(func)


def is_random(func: OpOverload) -> bool:
    """Return whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


_OVERWRITING: Final = frozenset({"copy_", "_foreach_copy_", "fill_", "zero_", "_foreach_zero_"})
