"""Fake tensors for what depends on parameters or data, real ones for what does not.

Masks, positions and numbers of rows follow from shapes alone, and models look into them: transformers leaves out a mask
that hides nothing. So what is computed from no fake tensor is computed, where it is small. Beside it PyTorch's
`FakeTensorMode` computes shapes and types only, and allocates nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import init
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from calibration.capture.schemas import OperatorMode, arguments_of, is_random, name_of, operands_of, tensors_in

_COMPUTED_BYTES: Final = 64 * 2**20
"""Of results up to which they are computed: a mask of 8192 x 8192 bytes."""


class FakeTensors(OperatorMode):  # type: ignore[no-untyped-call]
    """Within it new tensors are fake, save those that depend on no fake one and are small."""

    def __init__(self) -> None:
        super().__init__()
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        # Tensors of a GPU, and what stands for them.
        self._elsewhere = WeakIdKeyDictionary()
        # Storages of real tensors that hold what is not known since an operation wrote to them.
        self._overwritten = WeakIdKeyDictionary()

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Compute an operation, or what it would return."""
        tensors = tensors_in((args, kwargs))
        is_real = not any(isinstance(each, FakeTensor) for each in tensors)
        is_known = not any(map(self._is_unknown, tensors))
        # A view of what was overwritten is one of the same storage.
        if (is_real and func.is_view) or (is_known and self._is_computed(func, args, kwargs, tensors)):
            with no_dispatch():
                return func(*args, **kwargs)
        return self._fake_results(func, args, kwargs)

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a fake tensor like one, itself where it is fake."""
        if isinstance(tensor, FakeTensor):
            return tensor
        with no_dispatch():
            plain = tensor.detach()
            if plain.is_cuda:
                # What a loss or a model keeps on a GPU: here all are of the CPU.
                if tensor not in self._elsewhere:
                    self._elsewhere[tensor] = torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype)
                plain = self._elsewhere[tensor]
        made: torch.Tensor = self._fake.from_tensor(plain)
        return made

    def _is_computed(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], tensors: Sequence[torch.Tensor]
    ) -> bool:
        """Return whether to compute an operation on known tensors: what it gives is small, and no arbitrary content."""
        if tensors and (func._schema.is_mutable or _DYNAMIC & set(func.tags)):  # noqa: SLF001
            return True
        results = tensors_in(self._fake_results(func, args, kwargs))
        is_arbitrary = is_random(func) or "empty" in name_of(func)
        # One number is drawn for the model to look at: whether to leave out a layer.
        if is_arbitrary and any(each.is_floating_point() and each.numel() > 1 for each in results):
            return False
        return sum(each.numel() * each.element_size() for each in results) <= _COMPUTED_BYTES

    def _fake_results(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        originals: dict[int, torch.Tensor] = {}
        if func is _INDEX:
            args = (args[0], [each for index in args[1] for each in self._as_numbers(index)])

        def to_fake(tensor: torch.Tensor) -> torch.Tensor:
            fake = self.fake(tensor)
            originals[id(fake)] = tensor
            return fake

        fake_args, fake_kwargs = tree_map_only(torch.Tensor, to_fake, (args, dict(kwargs)))
        with self._fake:
            compute: Callable[..., Any] = _grouped_product if func is _GROUPED_PRODUCT else func
            result = compute(*fake_args, **fake_kwargs)
            if name_of(func) in _NORMALIZATIONS:
                result = _with_wide_statistics(result, arguments_of(func, fake_args, fake_kwargs)["weight"])
            elif layout := _NORMALIZATIONS_BACKWARD.get(name_of(func)):
                result = _with_gradient_like(arguments_of(func, fake_args, fake_kwargs)["input"], layout, result)
        # A scaler finds no infinite gradient among fake ones, else the optimizer would not step.
        if originals and func._schema.is_mutable and func is not _FINDS_INFINITY:  # noqa: SLF001
            for tensor, is_written in operands_of(func, args, kwargs):
                if is_written and not isinstance(tensor, FakeTensor):
                    self._overwritten[tensor.untyped_storage()] = True
        return tree_map_only(torch.Tensor, lambda each: originals.get(id(each), each), result)

    def _as_numbers(self, index: torch.Tensor | None) -> Sequence[torch.Tensor | None]:
        """Return numbers of rows for a mask that is known; of one that is not nobody knows how many it selects."""
        if index is None or index.dtype is not torch.bool or self._is_unknown(index):
            return (index,)
        with no_dispatch():
            return index.nonzero(as_tuple=True)

    def _is_unknown(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, FakeTensor) or tensor.untyped_storage() in self._overwritten


@contextmanager
def convertible() -> Iterator[None]:
    """Let `nn.Module.to` work on fake parameters within.

    It exchanges them for others in place, and refuses those that anything refers to weakly: here PyTorch alone does.
    """
    swap = torch.utils.swap_tensors
    torch.utils.swap_tensors = _exchange
    try:
        yield
    finally:
        torch.utils.swap_tensors = swap


def _exchange(first: torch.Tensor, second: torch.Tensor) -> None:
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    torch._C._swap_tensor_impl(first, second)  # noqa: SLF001 - as `torch.utils.swap_tensors` does


@contextmanager
def undrawn() -> Iterator[None]:
    """Leave new weights as they are within, which have no values: PyTorch's truncated normals look whether they fit."""
    draw = init._no_grad_trunc_normal_
    init._no_grad_trunc_normal_ = lambda tensor, *_arguments, **_names: tensor
    try:
        yield
    finally:
        init._no_grad_trunc_normal_ = draw


def _with_wide_statistics(result: Sequence[torch.Tensor], weight: torch.Tensor | None) -> Sequence[torch.Tensor]:
    """Return results of a normalization with its statistics in the element type of its weights, where that is wider.

    Kernels do so in mixed precision; PyTorch's shapes without data have them as the maps.
    """
    if weight is None or weight.element_size() <= result[1].element_size():
        return result
    return (result[0], *(each.to(weight.dtype) for each in result[1:]))


def _with_gradient_like(
    given: torch.Tensor,
    layout: Callable[[torch.Tensor], torch.memory_format],
    result: Sequence[torch.Tensor | None],
) -> Sequence[torch.Tensor | None]:
    """Return what the backward of a normalization does, the gradient of its input in the type of that.

    And not as PyTorch's shapes without data have it, in the type of the weights and the order of the other gradient
    (`native/layer_norm.cpp`, `native/group_norm.cpp`, `native/Normalization.cpp`).
    """
    if result[0] is None:
        return result
    return (torch.empty_like(given, memory_format=layout(given)), *result[1:])


def _grouped_product(first: torch.Tensor, second: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:  # noqa: ANN401
    """Return what a product of groups of rows is like, in the type of its factors.

    PyTorch's shapes without data take those of Hopper's kernel alone, of two bytes; elsewhere it multiplies group by
    group, in every type (`native/GroupedMMUtils.h`).
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
"""In which layout they return the gradient of an input."""
_GROUPED_PRODUCT: Final = torch.ops.aten._grouped_mm.default  # noqa: SLF001 - as FakeTensorMode is given it
_INDEX: Final = torch.ops.aten.index.Tensor
_DYNAMIC: Final = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_FINDS_INFINITY: Final = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
