"""Operations of forward as they were dispatched, to be recomputed with the same random numbers."""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

from calibration.apply.saved_storage import Layout, SavedStorage, refuse_written
from calibration.capture.schemas import arguments_of, is_random, tensors_in

_STATISTICS: Final = ("running_mean", "running_var")


@dataclass(frozen=True, slots=True)
class View:
    """A tensor of a storage that may be released."""

    held: SavedStorage
    layout: Layout
    witness: "Kept | None"

    def tensor(self) -> torch.Tensor:
        """Return the tensor with its content."""
        if self.witness is not None:
            self.witness.tensor()
        return self.layout.on(self.held.materialize())


@dataclass(slots=True)
class Kept:
    """A tensor that is kept; `version` is its count of writes after its operation."""

    kept: torch.Tensor
    version: int

    @property
    def is_written(self) -> bool:
        """Whether it was written since."""
        return self.kept._version != self.version  # noqa: SLF001 - PyTorch has no public one

    def tensor(self) -> torch.Tensor:
        """Return the tensor.

        Raises:
            RuntimeError: it was written since.
        """
        refuse_written(self.kept, self.version, self.kept.shape, "to recompute a part of forward")
        return self.kept


@dataclass(frozen=True, slots=True)
class Drawn:
    """The generator of a random operation, and its state before."""

    generator: torch.Generator
    state: torch.Tensor

    @classmethod
    def by(cls, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "Drawn | None":
        """Return the state before an operation; None if it is not random."""
        if not is_random(func):
            return None
        generator = generator_of(args, kwargs)
        return cls(generator, generator.get_state())

    @contextmanager
    def again(self) -> Iterator[None]:
        """Restore the state within."""
        before = self.generator.get_state()
        self.generator.set_state(self.state)
        try:
            yield
        finally:
            self.generator.set_state(before)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A dispatched operation and the storages that it makes."""

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    made: tuple[tuple[int, "weakref.ref[SavedStorage]"], ...]
    drawn: Drawn | None
    has_gradients: bool

    def run(self) -> None:
        """Recompute its results."""
        with _below_autograd(has_gradients=self.has_gradients):
            args, kwargs = tree_map_only((View, Kept), lambda each: each.tensor(), (self.args, dict(self.kwargs)))
            args, kwargs = _with_own_statistics(self.func, args, kwargs)
            with nullcontext() if self.drawn is None else self.drawn.again():
                results = tensors_in(self.func(*args, **kwargs))
        for index, made in self.made:
            if (held := made()) is not None:
                held.restore(results[index].untyped_storage())

    @property
    def wanted(self) -> Iterator[SavedStorage]:
        """Its results that are still needed."""
        return (held for _, made in self.made if (held := made()) is not None)

    @property
    def is_stale(self) -> bool:
        """Whether an operand was written since, so that `run` would fail."""
        found = (each.witness if isinstance(each, View) else each for each in self._references)
        return any(each is not None and each.is_written for each in found)

    @property
    def _references(self) -> Iterator["View | Kept"]:
        return (each for each in tree_leaves((self.args, dict(self.kwargs))) if isinstance(each, View | Kept))

    @property
    def read(self) -> Iterator[SavedStorage]:
        """Storages that it reads, which may have been released."""
        return (each.held for each in self._references if isinstance(each, View))

    @property
    def kept(self) -> Iterator[torch.Tensor]:
        """Other tensors that it reads."""
        return (each.kept for each in self._references if isinstance(each, Kept))


@contextmanager
def _below_autograd(*, has_gradients: bool) -> Iterator[None]:
    """Dispatch below autograd in forward's grad mode, by which some operators differ, without autocast."""
    below, as_it_is = torch._C._AutoDispatchBelowAutograd(), torch._C._DisableAutocast()  # noqa: SLF001 - no public ones
    with torch.set_grad_enabled(has_gradients), below, as_it_is:
        yield


def _with_own_statistics(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Replace running statistics by copies, for those of the model are updated already."""
    named = arguments_of(func, args, kwargs)
    if not any(name in named and isinstance(named[name], torch.Tensor) for name in _STATISTICS):
        return args, kwargs
    own = {id(named[name]) for name in _STATISTICS if isinstance(named.get(name), torch.Tensor)}
    copied: tuple[Any, Any] = tree_map_only(
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
