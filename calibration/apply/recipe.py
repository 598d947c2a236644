"""Operations of forward as they were dispatched, to be recomputed with the same random numbers and settings."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from calibration.apply.saved_storage import SavedStorage, TensorLayout, refuse_written
from calibration.capture.schemas import arguments_of, tensors_in, with_leaves_replaced

_STATISTICS: Final = ("running_mean", "running_var")


def _precision(backend: str, kind: str) -> "_Setting":
    """Return what gets and sets the precision of a backend's products in float32: PyTorch's public ones may raise."""
    get, put = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter  # noqa: SLF001
    return partial(get, backend, kind), partial(put, backend, kind)


_Setting = tuple[Callable[[], Any], Callable[[Any], object]]
_EVERYWHERE: Final[Sequence[_Setting]] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
)
_ON_CPU: Final[Sequence[_Setting]] = (
    *_EVERYWHERE,
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),  # noqa: SLF001 - no public one sets it alone
    _precision("mkldnn", "matmul"),
    _precision("mkldnn", "conv"),
)
_ON_GPU: Final[Sequence[_Setting]] = (
    *_EVERYWHERE,
    (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),  # noqa: SLF001 - as above
    (torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark),  # noqa: SLF001
    (torch._C._get_cudnn_deterministic, torch._C._set_cudnn_deterministic),  # noqa: SLF001
    _precision("cuda", "matmul"),
    _precision("cuda", "conv"),
)
"""Global settings of PyTorch by which operators differ in their results, to get and to set."""


class Settings(NamedTuple):
    """Values of PyTorch's global settings on a type of device."""

    device_type: str
    values: Sequence[Any]

    @classmethod
    def now(cls, device_type: str) -> "Settings":
        return cls(device_type, [get() for get, _ in (_ON_GPU if device_type == "cuda" else _ON_CPU)])

    def put(self) -> None:
        for (_, put), value in zip(_ON_GPU if self.device_type == "cuda" else _ON_CPU, self.values, strict=True):
            put(value)


class View(NamedTuple):
    """A tensor of a storage that may be released."""

    held: SavedStorage
    layout: TensorLayout


@dataclass(slots=True)
class Kept:
    """A tensor that is kept, or its counter of writes alone; `version` is their count after its operation."""

    kept: torch.Tensor
    version: int
    shape: torch.Size


@dataclass(frozen=True, slots=True)
class Drawn:
    """The generator of a random operation, and its state before."""

    generator: torch.Generator
    state: torch.Tensor

    @classmethod
    def by(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "Drawn":
        """Return the state before a random operation."""
        generator = generator_of(args, kwargs)
        return cls(generator, generator.get_state())

    @contextmanager
    def again(self) -> Iterator[None]:
        before = self.generator.get_state()
        self.generator.set_state(self.state)
        try:
            yield
        finally:
            self.generator.set_state(before)


@dataclass(slots=True)
class Recipe:
    """A dispatched operation and the storages that it makes.

    Attributes:
        read: storages that it reads, which may have been released.
        counted: tensors with the version counters of all that it reads; a kept one is among them.
        is_simple: whether what it writes is its own, and what it reads is not written later in forward.
        made: positions among its results of storages that may be released.
    """

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    drawn: Drawn | None
    has_gradients: bool
    settings: Settings
    read: Sequence[SavedStorage]
    counted: Sequence[Kept]
    kept: Sequence[torch.Tensor]
    is_simple: bool
    made: Sequence[tuple[int, "weakref.ref[SavedStorage]"]] = ()

    def check(self) -> None:
        """Raise RuntimeError where an operand was written since."""
        for each in self.counted if self.is_stale else ():
            refuse_written(each.kept, each.version, each.shape, "to recompute a part of forward")

    def run(self) -> None:
        had_gradients, found = torch.is_grad_enabled(), Settings.now(self.settings.device_type)
        # Below autograd in forward's grad mode, by which some operators differ, without autocast.
        with torch._C._AutoDispatchBelowAutograd(), torch._C._DisableAutocast():  # noqa: SLF001 - no public ones
            torch._C._set_grad_enabled(self.has_gradients)  # noqa: SLF001 - the public one is a context
            try:
                if found != self.settings:
                    self.settings.put()
                args = with_leaves_replaced((View, Kept), _tensor, self.args)
                kwargs = with_leaves_replaced((View, Kept), _tensor, self.kwargs) if self.kwargs else {}
                if _has_statistics(self.func):
                    args, kwargs = _with_own_statistics(self.func, args, kwargs)
                if self.drawn is None:
                    results = tensors_in(self.func(*args, **kwargs))
                else:
                    with self.drawn.again():
                        results = tensors_in(self.func(*args, **kwargs))
            finally:
                torch._C._set_grad_enabled(had_gradients)  # noqa: SLF001
                if found != self.settings:
                    found.put()
        for index, made in self.made:
            if (held := made()) is not None:
                held.restore(results[index].untyped_storage())

    @property
    def wanted(self) -> list[SavedStorage]:
        """Its results that are still needed."""
        return [held for _, made in self.made if (held := made()) is not None]

    @property
    def is_stale(self) -> bool:
        """Whether an operand was written since."""
        for each in self.counted:  # noqa: SIM110 - half the time of a generator
            if each.kept._version != each.version:  # noqa: SLF001 - no public one
                return True
        return False

    @property
    def is_ready(self) -> bool:
        """Whether all that it reads is on the device."""
        for each in self.read:  # noqa: SIM110 - as above
            if each.live is None:
                return False
        return True


def _tensor(reference: View | Kept) -> torch.Tensor:
    return reference.kept if isinstance(reference, Kept) else reference.layout.on(reference.held.materialize())


@cache
def _has_statistics(func: OpOverload) -> bool:
    return any(each.name in _STATISTICS for each in func._schema.arguments)  # noqa: SLF001 - PyTorch has no public one


def _with_own_statistics(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Replace running statistics by copies, for those of the model are updated already."""
    named = arguments_of(func, args, kwargs)
    own = {id(named[name]) for name in _STATISTICS if isinstance(named.get(name), torch.Tensor)}
    copied: tuple[Any, Any] = with_leaves_replaced(
        torch.Tensor, lambda each: each.clone() if id(each) in own else each, (args, kwargs)
    )
    return copied


def generator_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Generator:
    """Return the generator of a random operation: the one given, or that of the device given, or of its tensors.

    A tensor on a GPU counts first: others may be on the host.
    """
    leaves = tree_leaves((args, dict(kwargs)))
    given = next((each for each in leaves if isinstance(each, torch.Generator)), None)
    if given is not None:
        return given
    asked = [each for each in leaves if isinstance(each, torch.device)]
    devices = asked or [each.device for each in leaves if isinstance(each, torch.Tensor)]
    gpu = next((each for each in devices if each.type == "cuda"), None)
    if gpu is None:
        return torch.default_generator
    index = torch.cuda.current_device() if gpu == torch.device("cuda") else gpu.index
    generator: torch.Generator = torch.cuda.default_generators[index]
    return generator
