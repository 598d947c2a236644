"""Results of operators under fake tensors, known by the arguments of an earlier call.

A model of many equal blocks runs the same operators on tensors of the same shapes in each of them.
"""

from functools import cache, cached_property
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from vdnnsim.errors import CaptureError

_DESCRIBED: Final = (int, float, bool, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
"""Types of arguments that are described by themselves and their type."""


class KnownResults(FakeTensorMode):  # type: ignore[no-untyped-call]
    """PyTorch's mode, which keeps the shapes of results by those of arguments, and looks them up by fewer attributes.

    Its own description of an argument takes half of the time of a capture; it has attributes of sparse, quantized and
    symbolic tensors.

    Attributes:
        is_over: whether the capture has ended, and operators are refused: a model's loop would compute with no values.
    """

    is_over = False

    @cached_property
    def avoid_device_init(self) -> bool:
        """Whether there is no GPU, which PyTorch's mode asks for each tensor."""
        return bool(super().avoid_device_init)

    def dispatch(self, func: OpOverload, *rest: Any) -> Any:  # noqa: ANN401 - PyTorch's
        if self.is_over:
            raise CaptureError(
                f"{func}: takes a tensor without values, which forward or a hook kept outside of the model when it was "
                "captured, as in a cache of a function: clear it once the plan is made, or run forward before that"
            )
        return super().dispatch(func, *rest)

    def results(self, func: OpOverload, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - whatever the operator returns
        """Return the results of an operator, at once where those of such arguments are known.

        To enter the mode and be dispatched back to it takes a quarter longer.
        """
        if func is _UNSAFE_VIEW:
            # PyTorch's mode keeps no results of it, but of what it calls (`native/TensorShape.cpp`).
            func = _VIEW
        key = key_of(func, args, kwargs)
        entry = None if key is None else self.cache.get(key)
        if not isinstance(entry, fake_tensor._DispatchCacheValidEntry):  # noqa: SLF001 - as below
            return self.dispatch(func, (), args, kwargs)
        if not all(each.metadata is None or _is_plain(each.metadata) for each in entry.output_infos):
            return self.dispatch(func, (), args, kwargs)
        made = tuple([self._known(each, func, args) for each in entry.output_infos])
        return made if entry.is_output_tuple else made[0]

    def _known(self, info: Any, func: OpOverload, args: Any) -> Any:  # noqa: ANN401 - PyTorch's
        """Return a known result as PyTorch's mode does, which takes three times as long for each new tensor."""
        metadata = info.metadata
        if metadata is None:
            return info.constant_value if info.inplace_idx is None else args[info.inplace_idx]
        shape, stride = metadata.shape, metadata.stride
        with torch._C._DisableTorchDispatch():  # noqa: SLF001 - as in the method of PyTorch's mode
            plain = torch.empty_strided(shape, stride, dtype=metadata.dtype, device="meta")
            if func.is_view:
                plain.set_(args[info.view_idx].untyped_storage(), metadata.storage_offset, shape, stride)
        device = metadata.device
        if device not in self._attributes:
            self._attributes[device] = dict(vars(FakeTensor(self, plain, device)))
        made = torch.Tensor._make_subclass(  # noqa: SLF001 - as `FakeTensor` is made
            FakeTensor, plain, metadata.requires_grad, dispatch_device=True, device_for_backend_keys=device
        )
        if self._allow_unsafe_data_ptr_access:
            # As code of Inductor asks for it.
            torch._C._set_warn_deprecated_on_mutable_data_ptr(made)  # noqa: SLF001 - as `FakeTensor` does
        else:
            torch._C._set_throw_on_mutable_data_ptr(made)  # noqa: SLF001 - as `FakeTensor` does
        made.__dict__.update(self._attributes[device])
        return made

    @cached_property
    def _attributes(self) -> dict[torch.device, dict[str, Any]]:
        """Attributes of a new tensor by device, which are the same for all."""
        return {}

    def _cache_key(self, state: Any, func: OpOverload, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - PyTorch's
        return key_of(func, args, kwargs) or super()._cache_key(state, func, args, kwargs)


def _is_plain(metadata: Any) -> bool:  # noqa: ANN401 - PyTorch's
    return metadata.layout is torch.strided and not (metadata.is_conj or metadata.is_neg)


def key_of(func: OpOverload, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - of PyTorch's mode
    """Return what decides the shapes of results; None where that is not known of a type."""
    found: list[object] = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    may_alias = _may_alias(func)
    if not (_describe(args, found, may_alias) and _describe(kwargs, found, may_alias)):
        return None
    return fake_tensor._DispatchCacheKey(tuple(found))  # noqa: SLF001 - as the method that it is for


@cache
def _may_alias(func: Any) -> bool:  # noqa: ANN401 - also one of a higher order
    """Return whether results may lie in the storage of an argument, so that it matters where that begins."""
    if not isinstance(func, OpOverload) or func.is_view or func._schema.is_mutable:  # noqa: SLF001 - no public one
        return True
    composite = torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001 - as PyTorch's mode asks
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), composite)  # type: ignore[no-untyped-call]  # noqa: SLF001


def _describe(value: object, found: list[object], may_alias: bool) -> bool:  # noqa: FBT001 - of each argument
    """Append what decides the shape of results; return False where that is not known of a type."""
    if isinstance(value, FakeTensor):
        if value.constant is not None or value.layout is not torch.strided or value.is_quantized:
            return False
        flags = value.requires_grad, value.is_conj(), value.is_neg(), value.is_inference()
        found += (value.dtype, value.fake_device, value.shape, value.stride(), flags)
        if may_alias:
            found += (value.storage_offset(), value.untyped_storage().nbytes())
        return True
    if isinstance(value, list | tuple | dict):
        found += (type(value), len(value))
        parts = value.items() if isinstance(value, dict) else value
        return all(_describe(each, found, may_alias) for each in parts)
    # 1 and 1.0 are equal and make results of other types.
    found += (type(value), value)
    return type(value) in _DESCRIBED


_VIEW: Final = torch.ops.aten.view.default
_UNSAFE_VIEW: Final = torch.ops.aten._unsafe_view.default  # noqa: SLF001 - as operators are called
