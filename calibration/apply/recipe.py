"""Operations of forward as they were dispatched, to be recomputed with the same random numbers."""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from calibration.apply.saved_storage import SavedStorage, TensorLayout, refuse_written
from calibration.capture.schemas import arguments_of, tensors_in, with_leaves_replaced

_STATISTICS: Final = ("running_mean", "running_var")


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
        had_gradients = torch.is_grad_enabled()
        # Below autograd in forward's grad mode, by which some operators differ, without autocast.
        with torch._C._AutoDispatchBelowAutograd(), torch._C._DisableAutocast():  # noqa: SLF001 - no public ones
            torch._C._set_grad_enabled(self.has_gradients)  # noqa: SLF001 - the public one is a context
            try:
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
