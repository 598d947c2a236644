"""A dispatch mode for operators, and what their schemas say: arguments, operands, writes."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from vdnnsim.dnn.step import Access

RECORD_STREAM: Final = torch.ops.aten.record_stream.default
"""Its schema declares a write."""
_DEVICE: Final = torch.ops.prim.device.default
_BEGIN: Final = torch.ops.profiler._record_function_enter_new.default  # noqa: SLF001 - as it is called
_END: Final = torch.ops.profiler._record_function_exit._RecordFunction  # noqa: SLF001 - as it is called
_CONTAINERS: Final = (tuple, list, dict)
_SCALARS: Final = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout})
"""Types of most other arguments, told at once."""


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that calls `dispatch` for each operator.

    Attributes:
        is_compiled: whether torch.compile compiles what runs within it, which PyTorch otherwise runs eagerly.
        opened: subclasses of tensors that are not seen, but the operators that they run on the tensors within them.
    """

    is_compiled: ClassVar[bool] = False
    opened: ClassVar[frozenset[type]] = frozenset()

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator returns
        if not self.opened.isdisjoint(types):
            return NotImplemented
        if func is _DEVICE and isinstance(args[0], FakeTensor):
            # Four of five calls under fake tensors.
            return args[0].fake_device
        if func is _BEGIN or func is _END:
            # Marks around steps of optimizers, which are thousands where each parameter has one of its own.
            with torch._C._DisableTorchDispatch():  # noqa: SLF001 - as PyTorch's modes
                return func(*args, **kwargs or {})
        return self.dispatch(func, args, kwargs or {})

    def in_mode_below(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return the results of an operator in the mode below, at once where that is one of these.

        PyTorch would look the mode up and convert arguments and results, which takes as long as all that it does.
        """
        below = _get_current_dispatch_mode()
        if not isinstance(below, OperatorMode) or below.opened:
            return func(*args, **kwargs)
        # What `_pop_mode_temporarily` does, which takes as long as a small operator.
        torch._C._pop_torch_dispatch_stack(None)  # noqa: SLF001
        try:
            return below.dispatch(func, args, kwargs)
        finally:
            torch._C._push_on_torch_dispatch_stack(below)  # noqa: SLF001

    def decomposed(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Run the operators of which a composite consists within the mode; NotImplemented if it is none."""
        with self:
            return func.decompose(*args, **kwargs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: Dynamo compiles nothing within a mode, and to say so takes longer than a small operator."""
        return False

    @classmethod
    def is_infra_mode(cls) -> bool:
        return cls.is_compiled

    ignore_compile_internals = is_infra_mode

    @abstractmethod
    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return the results of an operator."""


class _Parameter(NamedTuple):
    """An argument of a schema, which PyTorch makes anew each time that it is asked for."""

    name: str
    by_name: bool
    has_default: bool
    default: Any
    is_written: bool


@cache
def _parameters_of(func: OpOverload) -> tuple[_Parameter, ...]:
    return tuple(
        _Parameter(
            each.name,
            each.kwarg_only,
            each.has_default_value(),
            each.default_value,
            each.alias_info is not None and each.alias_info.is_write,
        )
        for each in func._schema.arguments  # noqa: SLF001 - PyTorch has no public one
    )


@cache
def name_of(func: OpOverload) -> str:
    """Return the name of an operator without library and overload, `convolution`."""
    return str(func._schema.name).rpartition("::")[2]  # noqa: SLF001 - PyTorch has no public one


def arguments_of(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names in the schema, with defaults."""
    bound: dict[str, Any] = {}
    given = len(args)
    for position, (name, by_name, has_default, default, _) in enumerate(_parameters_of(func)):
        if position < given and not by_name:
            bound[name] = args[position]
        elif name in kwargs:
            bound[name] = kwargs[name]
        elif has_default:
            bound[name] = default
    return bound


def tensors_in(value: object) -> list[torch.Tensor]:
    """Return the tensors in arguments or results of an operator, in order."""
    # PyTorch's trees take several times as long, for they open more than lists and dictionaries.
    if isinstance(value, torch.Tensor):
        return [value]
    if not isinstance(value, _CONTAINERS):
        return []
    found: list[torch.Tensor] = []
    for each in value.values() if isinstance(value, dict) else value:
        if type(each) in _SCALARS:
            continue
        if isinstance(each, torch.Tensor):
            found.append(each)
        elif isinstance(each, _CONTAINERS):
            found += tensors_in(each)
    return found


def with_leaves_replaced(kind: type | tuple[type, ...], replace: Callable[[Any], Any], value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, kind):
        return replace(value)
    if isinstance(value, dict):
        return {name: with_leaves_replaced(kind, replace, each) for name, each in value.items()}
    if isinstance(value, _CONTAINERS):
        found = []
        for each in value:
            # Most leaves are told here, for a call takes as long as all else.
            if type(each) in _SCALARS:
                found.append(each)
            elif isinstance(each, kind):
                found.append(replace(each))
            else:
                found.append(with_leaves_replaced(kind, replace, each))
        return type(value)(found)
    return value


def operands_of(
    func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[torch.Tensor, bool]]:
    """Yield the tensors among the arguments of a call, each with whether it is written."""
    given = len(args)
    for position, name, is_written in _of_tensors(func):
        value = args[position] if position < given else kwargs.get(name)
        if isinstance(value, torch.Tensor):
            yield value, is_written
        elif value is not None:
            for tensor in tensors_in(value):
                yield tensor, is_written


@cache
def _of_tensors(func: OpOverload) -> tuple[tuple[int, str, bool], ...]:
    """Return position and name of each argument that is a tensor or has some, and whether it is written."""
    schema = func._schema.arguments  # noqa: SLF001 - PyTorch has no public one
    of_tensors = ["Tensor" in str(each.type) for each in schema]
    parameters = enumerate(_parameters_of(func))
    return tuple((at, each.name, each.is_written) for at, each in parameters if of_tensors[at])


@cache
def only_writes(func: OpOverload) -> bool:
    """Return whether an operator only writes its mutable arguments: fills, copies, `out`."""
    is_out = any(argument.is_out for argument in func._schema.arguments)  # noqa: SLF001
    return is_out or name_of(func) in _OVERWRITING or is_random(func)


@cache
def is_random(func: OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


_OVERWRITING: Final = frozenset({"copy_", "_foreach_copy_", "fill_", "zero_", "_foreach_zero_"})


def uses_of(
    func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[torch.Tensor, Access]]:
    """Yield the tensors among the arguments of a call, and how its schema says that it uses them."""
    writes = Access.WRITE if only_writes(func) else Access.UPDATE
    for tensor, is_written in operands_of(func, args, kwargs):
        yield tensor, writes if is_written else Access.READ
