"""Fake tensors that keep the values of small tensors which depend on no parameter and no data.

Models read masks, positions and indices, which follow from shapes: transformers drops a mask of all True. Operations on
known tensors run; all others compute shapes and types in PyTorch's `FakeTensorMode`, without memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import torch
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import init
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from calibration.capture.known_results import KnownResults
from calibration.capture.schemas import (
    OperatorMode,
    arguments_of,
    is_random,
    name_of,
    operands_of,
    tensors_in,
    with_leaves_replaced,
)

_COMPUTED_BYTES: Final = 64 * 2**20
"""Limit of computed results: a mask of 8192 x 8192."""


class FakeTensors(OperatorMode):  # type: ignore[no-untyped-call]
    """Mode in which new tensors are fake, unless they are small and depend on no fake one.

    Attributes:
        in_place: operators that return their argument, where PyTorch's meta functions make another tensor.
    """

    in_place: ClassVar[frozenset[OpOverload]] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self._fake = KnownResults(allow_non_fake_inputs=True)
        # Stand-ins on the CPU for tensors of a GPU.
        self._elsewhere = WeakIdKeyDictionary()
        # Storages of real tensors that a fake tensor was written to.
        self._overwritten = WeakIdKeyDictionary()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run a user's code in this mode; its fake tensors that the code has kept afterwards take part in nothing."""
        with self:
            try:
                yield
            finally:
                self._fake.is_over = True

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Run an operation, or compute the shapes of its results."""
        if func in self.in_place:
            return args[0]
        if func is _IS_ALL_TRUE:
            # The check of a distribution, which raises otherwise.
            return torch.ones((), dtype=torch.bool, device="cpu")
        tensors = tensors_in((args, kwargs))
        is_real = not any(isinstance(each, FakeTensor) for each in tensors)
        is_known = not any(map(self._is_unknown, tensors))
        # A view of an overwritten tensor has its storage.
        if (is_real and func.is_view) or (is_known and self._is_computed(func, args, kwargs, tensors)):
            with no_dispatch():
                return func(*args, **kwargs)
        return self._fake_results(func, args, kwargs)

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a fake tensor for a real one; a fake one as it is."""
        if isinstance(tensor, FakeTensor):
            return tensor
        with no_dispatch():
            plain = tensor.detach()
            if plain.is_cuda:
                # Kept on a GPU by a loss or a model.
                if tensor not in self._elsewhere:
                    self._elsewhere[tensor] = torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype)
                plain = self._elsewhere[tensor]
        made: torch.Tensor = self._fake.from_tensor(plain)
        return made

    def overwrite(self, tensor: torch.Tensor) -> None:
        """Note that a tensor was written by what is not dispatched, so that its values are unknown."""
        if not isinstance(tensor, FakeTensor):
            self._overwritten[tensor.untyped_storage()] = True

    def _is_computed(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], tensors: Sequence[torch.Tensor]
    ) -> bool:
        """Return whether to run an operation on known tensors: its results are small and not arbitrary."""
        if tensors and (func._schema.is_mutable or _DYNAMIC & set(func.tags)):  # noqa: SLF001
            return True
        results = tensors_in(self._fake_results(func, args, kwargs))
        is_arbitrary = is_random(func) or "empty" in name_of(func)
        # A single random number decides, as whether to drop a layer.
        if is_arbitrary and any(each.is_floating_point() and each.numel() > 1 for each in results):
            return False
        return sum(each.numel() * each.element_size() for each in results) <= _COMPUTED_BYTES

    def _fake_results(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        originals: dict[int, torch.Tensor] = {}
        if func is _EMBEDDING:
            self._check_rows(args[0], args[1])
        if func is _INDEX:
            args = (args[0], [each for index in args[1] for each in self._as_numbers(index)])

        def to_fake(tensor: torch.Tensor) -> torch.Tensor:
            fake = self.fake(tensor)
            originals[id(fake)] = tensor
            return fake

        fake_args, fake_kwargs = args, dict(kwargs)
        has_real = not all(isinstance(each, FakeTensor) for each in tensors_in((args, kwargs)))
        if has_real and func._schema.is_mutable and func is not _FINDS_INFINITY:  # noqa: SLF001
            # Else a scaler would skip the optimizer's step.
            for tensor, is_written in operands_of(func, args, kwargs):
                if is_written:
                    self.overwrite(tensor)
        if func._schema.is_mutable and not func._schema.returns:  # noqa: SLF001
            # Updates of lists of tensors, as optimizers make them, have neither results nor new shapes.
            return None
        if has_real:
            fake_args, fake_kwargs = with_leaves_replaced(torch.Tensor, to_fake, (args, dict(kwargs)))
        if func is _GROUPED_PRODUCT:
            with self._fake:
                result: Any = _grouped_product(*fake_args, **fake_kwargs)
        else:
            result = self._fake.results(func, fake_args, fake_kwargs)
        if name_of(func) in _NORMALIZATIONS:
            result = _with_wide_statistics(result, arguments_of(func, fake_args, fake_kwargs)["weight"])
        elif layout := _NORMALIZATIONS_BACKWARD.get(name_of(func)):
            result = _with_gradient_like(arguments_of(func, fake_args, fake_kwargs)["input"], layout, result)
        return tree_map_only(torch.Tensor, lambda each: originals.get(id(each), each), result) if originals else result

    def _check_rows(self, weight: torch.Tensor, indices: torch.Tensor) -> None:
        """Check that a table has the rows of known indices, as of positions; PyTorch's meta function does not."""
        if indices.numel() and not self._is_unknown(indices):
            with no_dispatch():
                largest = int(indices.max())
            if largest >= weight.shape[0]:
                raise IndexError(
                    f"index out of range in self: found {largest}, but the table has {weight.shape[0]} rows"
                )

    def _as_numbers(self, index: torch.Tensor | None) -> Sequence[torch.Tensor | None]:
        """Return row indices for a known mask; an unknown one selects an unknown number of rows."""
        if index is None or index.dtype is not torch.bool or self._is_unknown(index):
            return (index,)
        with no_dispatch():
            return index.nonzero(as_tuple=True)

    def _is_unknown(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, FakeTensor) or tensor.untyped_storage() in self._overwritten


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:  # noqa: ANN401 - a module, a class or an object
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def initializing() -> Iterator[None]:
    """Let models be made of fake parameters.

    `nn.Module.to` refuses to swap them for PyTorch's own weak references, and `trunc_normal_` reads their values.
    """
    as_it_is = replaced(init, "_no_grad_trunc_normal_", lambda tensor, *_arguments, **_names: tensor)
    with replaced(torch.utils, "swap_tensors", _exchange), as_it_is:
        yield


def _exchange(first: torch.Tensor, second: torch.Tensor) -> None:
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    torch._C._swap_tensor_impl(first, second)  # noqa: SLF001 - as `torch.utils.swap_tensors` does


def _with_wide_statistics(result: Sequence[torch.Tensor], weight: torch.Tensor | None) -> Sequence[torch.Tensor]:
    """Return results of a normalization with statistics in the type of its weights, where that is wider.

    As kernels do in mixed precision; PyTorch's meta functions use the type of the activation.
    """
    if weight is None or weight.element_size() <= result[1].element_size():
        return result
    return (result[0], *(each.to(weight.dtype) for each in result[1:]))


def _with_gradient_like(
    given: torch.Tensor,
    layout: Callable[[torch.Tensor], torch.memory_format],
    result: Sequence[torch.Tensor | None],
) -> Sequence[torch.Tensor | None]:
    """Return results of the backward of a normalization, with the input's gradient in the input's type and layout.

    PyTorch's meta functions use the type of the weights and the layout of the other gradient (`native/layer_norm.cpp`,
    `native/group_norm.cpp`, `native/Normalization.cpp`).
    """
    if result[0] is None:
        return result
    return (torch.empty_like(given, memory_format=layout(given)), *result[1:])


def _grouped_product(first: torch.Tensor, second: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:  # noqa: ANN401
    """Return a fake grouped product in the type of its factors.

    PyTorch's meta function accepts 16 bits alone, as Hopper's kernel; its fallback takes every type
    (`native/GroupedMMUtils.h`).
    """
    narrow = (each.to(torch.bfloat16) for each in (first, second))
    product: torch.Tensor = _GROUPED_PRODUCT(*narrow, *rest, **named)
    return product.to(first.dtype)


_NORMALIZATIONS: Final = frozenset(
    {"native_batch_norm", "_native_batch_norm_legit", "native_layer_norm", "native_group_norm"}
)
_NORMALIZATIONS_BACKWARD: Final = {
    "native_batch_norm_backward": suggest_memory_format,
    "native_layer_norm_backward": lambda _: torch.contiguous_format,
    "native_group_norm_backward": suggest_memory_format,
}
"""Layout of the gradient of an input."""
_GROUPED_PRODUCT: Final = torch.ops.aten._grouped_mm.default  # noqa: SLF001 - as FakeTensorMode is given it
_INDEX: Final = torch.ops.aten.index.Tensor
_IS_ALL_TRUE: Final = torch.ops.aten._is_all_true.default  # noqa: SLF001 - PyTorch's, for its checks
_EMBEDDING: Final = torch.ops.aten.embedding.default
_DYNAMIC: Final = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_FINDS_INFINITY: Final = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
