"""Runs operations of forward again: each as it was dispatched, with the random numbers that it drew."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

from calibration.apply.held import Held, Layout, refuse_written
from calibration.capture.schemas import RECORD_STREAM, OperatorMode, arguments_of, is_random, operands_of, tensors_in
from vdnnsim.dnn.captured_step import CapturedOperation

_UNSAFE_VIEW: Final = torch.ops.aten._unsafe_view.default  # noqa: SLF001 - an operator's name
_MAKES_NOTHING: Final = frozenset({torch.ops.aten.lift_fresh.default, _UNSAFE_VIEW})
"""Operations that are there or not, as tensors are fake or real: numbers of Python, and shapes of what was copied."""
_NAMES: Final = frozenset(map(str, _MAKES_NOTHING))
_STATISTICS: Final = ("running_mean", "running_var")


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor of a storage that may be given up."""

    held: Held
    layout: Layout
    witness: "_Kept | None"

    def tensor(self) -> torch.Tensor:
        if self.witness is not None:
            self.witness.tensor()
        return self.layout.on(self.held.bring())


@dataclass(frozen=True, slots=True)
class _Kept:
    """A tensor that stays as it is; refused once it was written over."""

    kept: torch.Tensor
    version: int

    def tensor(self) -> torch.Tensor:
        refuse_written(self.kept, self.version, self.kept.shape, "to compute a part of forward again")
        return self.kept


@dataclass(frozen=True, slots=True)
class Recipe:
    """An operation as it was dispatched, and the storages that it makes, as long as somebody else wants them."""

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    made: tuple[tuple[int, "weakref.ref[Held]"], ...]
    random_state: torch.Tensor | None
    device: torch.device

    def run(self) -> None:
        """Compute it again."""
        with _below_autograd():
            args, kwargs = tree_map_only(_REFERENCES, lambda each: each.tensor(), (self.args, dict(self.kwargs)))
            args, kwargs = _with_own_statistics(self.func, args, kwargs)
            if self.random_state is None:
                results = tensors_in(self.func(*args, **kwargs))
            else:
                before = _random_state(self.device)
                try:
                    _set_random_state(self.random_state, self.device)
                    results = tensors_in(self.func(*args, **kwargs))
                finally:
                    _set_random_state(before, self.device)
        for index, held in self.wanted:
            held.restore(results[index].untyped_storage())

    @property
    def wanted(self) -> Iterator[tuple[int, Held]]:
        """What it makes that somebody still wants, by its position among the results."""
        return ((index, held) for index, each in self.made if (held := each()) is not None)

    @property
    def read(self) -> Iterator[Held]:
        """What it reads of what may be given up."""
        return (each.held for each in tree_leaves((self.args, dict(self.kwargs))) if isinstance(each, _View))

    @property
    def kept(self) -> Iterator[torch.Tensor]:
        """What it reads of all else."""
        return (each.kept for each in tree_leaves((self.args, dict(self.kwargs))) if isinstance(each, _Kept))

    @property
    def touched(self) -> Iterator[Held]:
        """What it reads, and what it makes."""
        yield from self.read
        yield from (held for _, held in self.wanted)

    @property
    def is_done(self) -> bool:
        """Whether all that it makes is there."""
        return all(held.live is not None for _, held in self.wanted)


class ForwardWatch(OperatorMode):
    """Follows the operations of forward, and keeps recipes of those that may run again.

    Args:
        operations: those of the captured step.
        again: numbers of operations of which recipes are wanted.
        made_by: by operation the storages that it makes, in order.
        writers: by storage the operations that write it.
        hold: returns what is held of a storage by its number, made anew for a live one; None of what is not remade.
        known: returns what is held of a live storage.
        depart: is told where the program left the captured step.
        is_on_stream: whether the program issues on the stream on which the step began.
    """

    def __init__(
        self,
        operations: Sequence[CapturedOperation],
        again: frozenset[int],
        made_by: Mapping[int, Sequence[int]],
        writers: Mapping[int, Sequence[int]],
        hold: Callable[[int, torch.UntypedStorage], Held | None],
        known: Callable[[torch.UntypedStorage], Held | None],
        depart: Callable[[str], None],
        is_on_stream: Callable[[], bool],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operations, self._again, self._made_by, self._writers = operations, again, made_by, writers
        self._hold, self._known, self._depart, self._is_on_stream = hold, known, depart, is_on_stream
        self.issued = 0
        self.recipes: dict[int, Recipe] = {}
        self.is_following = True
        self._is_aside = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Look away from what is done within, which is not of the program."""
        before, self._is_aside = self._is_aside, True
        try:
            yield
        finally:
            self._is_aside = before

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Run an operation and note it."""
        if self._is_aside or not self.is_following or func.is_view or torch.Tag.inplace_view in func.tags:
            return func(*args, **kwargs)
        if func is RECORD_STREAM:
            return func(*args, **kwargs)
        if func in _MAKES_NOTHING and self._expected != str(func):
            return func(*args, **kwargs)
        while self._expected in _NAMES and self._expected != str(func):
            self.issued += 1
        number = self.issued
        wanted = number in self._again
        if not self._is_on_stream() and (
            wanted or any(self._known(each.untyped_storage()) for each in tensors_in((args, kwargs)))
        ):
            self.is_following = False
            self._depart(f"{func} runs on another stream than the one on which the step began")
            return func(*args, **kwargs)
        first = next((each for each in tensors_in((args, kwargs))), None)
        device = torch.device("cpu") if first is None else first.device
        state = _random_state(device) if wanted and is_random(func) else None
        with self.aside():
            references = self._referred(func, args, kwargs) if wanted else None
        result = func(*args, **kwargs)
        inputs = {each.untyped_storage()._cdata for each in tensors_in((args, kwargs))}  # noqa: SLF001 - its identity
        new = [
            (at, each)
            for at, each in enumerate(tensors_in(result))
            if each.untyped_storage()._cdata not in inputs  # noqa: SLF001
        ]
        # What has no bytes holds a place only, as the state of a dropout that drops nothing.
        makes = new if str(func) == self._expected else [each for _, each in new if each.untyped_storage().nbytes()]
        if not makes and not any(is_written for _, is_written in operands_of(func, args, kwargs)):
            return result
        if str(func) != self._expected:
            self.is_following = False
            self._depart(f"{func} runs where {self._expected} was captured")
            return result
        self.issued += 1
        made = []
        for (index, tensor), storage in zip(new, self._made_by.get(number, ()), strict=False):
            held = self._hold(storage, tensor.untyped_storage())
            if held is not None:
                made.append((index, weakref.ref(held)))
        if references is not None:
            self.recipes[number] = Recipe(func, *references, tuple(made), state, device)
        return result

    @property
    def _expected(self) -> str:
        return self._operations[self.issued].name if self.issued < len(self._operations) else "no operation"

    def _referred(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        written = {id(each) for each, writes in operands_of(func, args, kwargs) if writes}

        def refer(tensor: torch.Tensor) -> _View | _Kept:
            held = self._known(tensor.untyped_storage())
            if held is None:
                kept = _counting(tensor)
                return _Kept(kept, kept._version + (id(tensor) in written))  # noqa: SLF001
            witness = None
            # What writes it over in the step itself runs again behind this.
            if self._writers[held.number][-1] <= self.issued and not tensor.is_inference():
                empty = _counting(tensor)
                version = empty._version + (id(tensor) in written)  # noqa: SLF001
                empty.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                witness = _Kept(empty, version)
            return _View(held, Layout.of(tensor), witness)

        referred: tuple[Any, Any] = tree_map_only(torch.Tensor, refer, (args, dict(kwargs)))
        return referred


_REFERENCES: Final = (_View, _Kept)


@contextmanager
def _below_autograd() -> Iterator[None]:
    """Run what is dispatched as forward did: some operators make less where no gradients are wanted.

    Casts are operations of their own.
    """
    below, as_it_is = torch._C._AutoDispatchBelowAutograd(), torch._C._DisableAutocast()  # noqa: SLF001 - no public ones
    with torch.enable_grad(), below, as_it_is:
        yield


def _counting(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without its node that counts what is written to it; below autograd `detach` counts anew."""
    key = torch._C.DispatchKey.ADInplaceOrView  # noqa: SLF001 - there is no public one
    was_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(key)  # noqa: SLF001
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)  # noqa: FBT003, SLF001
    try:
        return tensor.detach()
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, was_excluded)  # noqa: SLF001


def _with_own_statistics(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Let a normalization update copies of its running statistics: those of the model were updated once."""
    named = arguments_of(func, args, kwargs)
    if not any(name in named and isinstance(named[name], torch.Tensor) for name in _STATISTICS):
        return args, kwargs
    own = {id(named[name]) for name in _STATISTICS if isinstance(named.get(name), torch.Tensor)}
    copied: tuple[Any, Any] = tree_map_only(
        torch.Tensor, lambda each: each.clone() if id(each) in own else each, (args, kwargs)
    )
    return copied


def _random_state(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(state: torch.Tensor, device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
