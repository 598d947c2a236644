"""CUDA's autocast for tensors of the CPU.

Source: the lists in `aten/src/ATen/autocast_mode.h`, a part of every PyTorch installation, `cached_cast` and the casts
in `autocast_mode.cpp`, and `cudnn/AutocastRNN.cpp` for recurrent layers.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from calibration.capture.cuda.rules import HALVES, Tensor
from calibration.capture.fake_tensors import replaced
from calibration.capture.schemas import with_leaves_replaced

aten = torch.ops.aten

_KEYS: Final = DispatchKeySet(DispatchKey.AutocastCPU)
_HEADER: Final = Path("include", "ATen", "autocast_mode.h")
_NORMS: Final = ("norm.Scalar", "norm.ScalarOpt_dim")

Cast = Callable[[OpOverload, tuple[Any, ...], dict[str, Any]], Any]


def operators_of(text: str, kind: str) -> tuple[str, ...]:
    """Return the operators in the list of a kind, as `FP32`, of the header, as `softmax.int`.

    Raises:
        ValueError: there is no such list.
    """
    found = re.search(rf"#define AT_FORALL_{kind}\(_\)(.*?)(?:\n\n|\n#)", text, re.DOTALL)
    if found is None:
        raise ValueError(f"autocast_mode.h has no list AT_FORALL_{kind}")
    named = re.findall(r"_\((\w+)(?:,\s*(\w+))?\)", found[1])
    return tuple(f"{name}.{overload}" if overload else name for name, overload in named)


class _Casts:
    """Casts by kind, and the cache of cast weights, which lasts until the outermost autocast ends."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def clear(self) -> None:
        self._kept.clear()

    def narrow(self, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._call(operator, args, kwargs, torch.get_autocast_dtype("cpu"))

    def wide(self, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._call(operator, args, kwargs, torch.float32)

    def widest(self, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kinds = {each.dtype for each in _tensors((args, kwargs)) if _is_eligible(each)}
        return self._call(
            operator, args, kwargs, torch.float32 if torch.float32 in kinds else torch.get_autocast_dtype("cpu")
        )

    def wide_result(self, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return float32 unless another type is asked for."""
        at = [each.name for each in operator._schema.arguments].index("dtype")
        asked = args[at] if at < len(args) else kwargs.get("dtype")
        if asked is None and _is_eligible(args[0]):
            args, kwargs = args[:at], {**kwargs, "dtype": torch.float32}
        return operator(*args, **kwargs)

    def norm(self, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute a norm in float32, by the overload that takes a type."""
        if not _is_eligible(args[0]):
            return operator(*args, **kwargs)
        return aten.norm(*args, **kwargs, dtype=torch.float32)

    def recurrent(self, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Cast weights into one new buffer, at every call; to float16, under autocast in bfloat16 as well."""
        kind = torch.float16
        input, weight, stride, buffer, hx, cx, *rest = args
        if any(_is_eligible(each) and each.dtype != kind for each in weight):
            buffer = torch.zeros(sum(each.numel() for each in weight), dtype=kind, device=input.device)
            weight = _slices(buffer, weight)
        hx, cx, input = (each if each is None else self._cast(each, kind) for each in (hx, cx, input))
        return operator(input, weight, stride, buffer, hx, cx, *rest, **kwargs)

    def _call(self, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], kind: torch.dtype) -> Any:
        def cast(value: object) -> object:
            return with_leaves_replaced(Tensor, lambda each: self._cast(each, kind), value)

        # From last to first, as PyTorch's binaries evaluate arguments.
        named = {name: cast(value) for name, value in reversed(kwargs.items())}
        return operator(*[cast(each) for each in reversed(args)][::-1], **named)

    def _cast(self, tensor: Tensor, kind: torch.dtype) -> Tensor:
        if not _is_eligible(tensor) or tensor.dtype == kind:
            return tensor
        is_kept = (
            kind in HALVES
            and tensor.dtype == torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()
            and torch.is_autocast_cache_enabled()
        )
        if not is_kept:
            return tensor.to(kind)
        if id(tensor) not in self._kept:
            self._kept[id(tensor)] = tensor, tensor.to(kind)
        return self._kept[id(tensor)][1]


def _slices(buffer: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return consecutive copies of weights in a buffer."""
    slices, begin = [], 0
    for each in weights:
        # Autograd sees the copies, not the buffer.
        copy = buffer.narrow(0, begin, each.numel()).view(-1, 1).detach()
        slices.append(copy.copy_(each.view(-1, 1)))
        begin += each.numel()
    return slices


def _tensors(tree: object) -> list[Tensor]:
    return [each for each in tree_leaves(tree) if isinstance(each, Tensor)]


def _is_eligible(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64


def _refused(operator: OpOverload, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    raise RuntimeError(
        f"{operator}: autocast of CUDA refuses it, as gradients of probabilities in 16 bits overflow; "
        "expected logits and binary_cross_entropy_with_logits"
    )


def _kinds(casts: _Casts) -> Mapping[str, Cast]:
    text = (Path(torch.__file__).parent / _HEADER).read_text()
    lists: Mapping[str, Cast] = {
        "LOWER_PRECISION_FP": casts.narrow,
        "FP32": casts.wide,
        "FP32_SET_OPT_DTYPE": casts.wide_result,
        "PROMOTE": casts.widest,
    }
    kinds = {name: cast for kind, cast in lists.items() for name in operators_of(text, kind)}
    kinds |= dict.fromkeys(_NORMS, casts.norm)
    return {**kinds, "_cudnn_rnn": casts.recurrent, "binary_cross_entropy": _refused}


@contextmanager
def autocast_as_cuda() -> Iterator[None]:
    """Apply the rules of CUDA's autocast to tensors of the CPU, under autocast of either device."""
    casts = _Casts()
    kinds = _kinds(casts)
    with torch.library._scoped_library("aten", "IMPL") as library, ExitStack() as entrances:
        of_cpu = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU")
        with warnings.catch_warnings():
            # PyTorch warns once that there are kernels already.
            warnings.simplefilter("ignore")
            for name in {each.removeprefix("aten::") for each in of_cpu if each.startswith("aten::")} - set(kinds):
                library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")
            for name, cast in kinds.items():
                packet, _, overload = name.partition(".")
                operator = getattr(getattr(aten, packet, None), overload or "default", None)
                if operator is not None:
                    library.impl(name, _kernel(operator, cast), "AutocastCPU")
        for target, name, value in _entrances(casts):
            entrances.enter_context(replaced(target, name, value))
        yield


def _kernel(operator: OpOverload, cast: Cast) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            return cast(operator, args, kwargs)

    return kernel


def _entrances(casts: _Casts) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield public functions of autocast to replace: owner, name, replacement."""
    begin, clear = torch.autocast.__init__, torch.clear_autocast_cache

    def enter(
        autocast: torch.autocast, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any
    ) -> None:
        chosen = torch.get_autocast_dtype("cuda") if dtype is None and device_type in ("cuda", "cpu") else dtype
        begin(autocast, "cpu" if device_type == "cuda" else device_type, chosen, *args, **kwargs)

    def clear_all() -> None:
        casts.clear()
        clear()

    def on_cpu(method: Callable[..., Any]) -> Callable[..., Any]:
        # For a context made earlier, as of Accelerate's models.
        def run(autocast: torch.autocast, *args: Any) -> Any:
            with replaced(autocast, "device", "cpu" if autocast.device == "cuda" else autocast.device):
                return method(autocast, *args)

        return run

    yield torch.autocast, "__init__", enter
    yield torch.autocast, "__enter__", on_cpu(torch.autocast.__enter__)
    yield torch.autocast, "__exit__", on_cpu(torch.autocast.__exit__)
    yield torch, "clear_autocast_cache", clear_all
    is_enabled = torch.is_autocast_enabled
    yield (
        torch,
        "is_autocast_enabled",
        lambda device_type="cpu": is_enabled("cpu" if device_type == "cuda" else device_type),
    )
