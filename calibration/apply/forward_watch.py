"""A dispatch mode that follows forward of a model and makes recipes of operations to recompute."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch._ops import OpOverload

from calibration.apply.live_schedule import LiveSchedule
from calibration.apply.recipe import Drawn, Kept, Recipe, View
from calibration.apply.saved_storage import Layout, SavedStorage, empty_of
from calibration.capture.schemas import (
    RECORD_STREAM,
    OperatorMode,
    is_random,
    operands_of,
    tensors_in,
    with_leaves_replaced,
)

_MAKES_NOTHING: Final = frozenset({"aten.lift_fresh.default", "aten._unsafe_view.default"})
"""Operations that fake and real tensors dispatch differently."""


class _Called(NamedTuple):
    """Facts of an operator, which cost more to find than many operators to run."""

    name: str
    is_left_out: bool
    is_mutable: bool
    is_random: bool


@cache
def _called(func: OpOverload) -> _Called:
    is_view = func.is_view or torch.Tag.inplace_view in func.tags
    return _Called(str(func), is_view or func is RECORD_STREAM, func._schema.is_mutable, is_random(func))  # noqa: SLF001


class Step(Protocol):
    """The step of the forward."""

    def storage_made(self, number: int, live: torch.UntypedStorage) -> SavedStorage | None:
        """Return a storage made by an operation of forward, if it can be recomputed."""

    def known(self, live: torch.UntypedStorage) -> SavedStorage | None:
        """Return the saved storage of a live one, if it has one."""

    def depart(self, why: str) -> None:
        """Leave the plan for the rest of the step."""


class ForwardWatch(OperatorMode):
    """Compares operations of forward to the captured ones, and keeps recipes of those to recompute.

    Args:
        is_on_stream: whether the step's stream is current.
        using: returns a context that allocates from a private pool.
    """

    def __init__(
        self,
        schedule: LiveSchedule,
        step: Step,
        is_on_stream: Callable[[], bool],
        using: Callable[[int], AbstractContextManager[None]],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._schedule, self._step, self._is_on_stream, self._using = schedule, step, is_on_stream, using
        self._names, self._made_by, self._pools = schedule.names, schedule.made_by, schedule.pools_in_forward
        self.issued = 0
        self.recipes: dict[int, Recipe] = {}
        self.is_following = True
        self._is_aside = False
        # Tensors that the latest operation writes, whose versions its recipe needs.
        self._written: list[Kept] = []

    def __exit__(self, *raised: object) -> None:
        self.count_writes()
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Ignore operations within, which are not of the program."""
        self.count_writes()
        before, self._is_aside = self._is_aside, True
        try:
            yield
        finally:
            self._is_aside = before

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if self._is_aside:
            return func(*args, **kwargs)
        self.count_writes()
        called = _called(func)
        if not self.is_following or called.is_left_out:
            return func(*args, **kwargs)
        expected = self._names[self.issued]
        if expected != called.name:
            if called.name in _MAKES_NOTHING:
                return func(*args, **kwargs)
            while expected in _MAKES_NOTHING:
                self.issued += 1
                expected = self._names[self.issued]
        number = self.issued
        wanted = number in self._schedule.recomputed_operations
        if not self._is_on_stream() and (
            wanted or any(self._step.known(each.untyped_storage()) for each in tensors_in((args, kwargs)))
        ):
            self.is_following = False
            self._step.depart(f"{func} runs on another stream than the one on which the step began")
            return func(*args, **kwargs)
        drawn = Drawn.by(args, kwargs) if wanted and called.is_random else None
        references = self._referred(func, args, kwargs) if wanted else None
        with self._using(self._pools.get(number, 0)):
            result = func(*args, **kwargs)
        inputs = {each.untyped_storage()._cdata for each in tensors_in((args, kwargs))}  # noqa: SLF001 - its identity
        stored = ((at, each.untyped_storage()) for at, each in enumerate(tensors_in(result)))
        new = [(at, each) for at, each in stored if each._cdata not in inputs]  # noqa: SLF001
        # Empty ones are placeholders, as the state of a dropout with p = 0.
        makes = new if expected == called.name else [each for _, each in new if each.nbytes()]
        if not makes and not (
            called.is_mutable and any(is_written for _, is_written in operands_of(func, args, kwargs))
        ):
            return result
        if expected != called.name:
            self.is_following = False
            self._step.depart(f"{func} runs where {expected} was captured")
            return result
        self.issued += 1
        made = []
        for (index, storage), of in zip(new, self._made_by.get(number, ()), strict=False):
            held = self._step.storage_made(of, storage)
            if held is not None:
                made.append((index, weakref.ref(held)))
        if references is not None:
            args, kwargs, read, counted, kept = references
            grads = torch.is_grad_enabled()
            self.recipes[number] = Recipe(func, args, kwargs, tuple(made), drawn, grads, read, counted, kept)
        return result

    def count_writes(self) -> None:
        """Note versions after the latest operation, which PyTorch counts when it has returned.

        A write of a schema may not be counted, as the noise of `rrelu_with_noise`; a user's function may count twice.
        """
        if self._written:
            for each in self._written:
                each.version = min(each.version + 1, each.kept._version)  # noqa: SLF001 - PyTorch has no public one
            self._written.clear()

    def _referred(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Any, Any, list[SavedStorage], list[Kept], list[torch.Tensor]]:
        """Return arguments that hold no storage which may be released, and what a recipe reads."""
        writes: set[int] = set()
        if _called(func).is_mutable:
            writes.update(id(each) for each, is_written in operands_of(func, args, kwargs) if is_written)
        read: list[SavedStorage] = []
        counted: list[Kept] = []
        others: list[torch.Tensor] = []

        def keep(tensor: torch.Tensor, kept: torch.Tensor) -> Kept:
            reference = Kept(kept, kept._version)  # noqa: SLF001
            if id(tensor) in writes:
                self._written.append(reference)
            counted.append(reference)
            return reference

        def refer(tensor: torch.Tensor) -> View | Kept:
            held = self._step.known(tensor.untyped_storage())
            if held is None:
                others.append(_counting(tensor))
                return keep(tensor, others[-1])
            read.append(held)
            witness = None
            # A later write of the step itself is recomputed after this operation.
            if self._schedule.writers[held.number][-1] <= self.issued and not tensor.is_inference():
                empty = _counting(tensor)
                witness = keep(tensor, empty)
                empty.data = empty_of(tensor.dtype, tensor.device)
            return View(held, Layout.of(tensor), witness)

        args, kwargs = with_leaves_replaced(torch.Tensor, refer, (args, kwargs))
        return args, kwargs, read, counted, others


def _counting(tensor: torch.Tensor) -> torch.Tensor:
    """Return a detached tensor with the same version counter; below autograd `detach` makes a new one."""
    key = torch._C.DispatchKey.ADInplaceOrView  # noqa: SLF001 - there is no public one
    was_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(key)  # noqa: SLF001
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)  # noqa: FBT003, SLF001
    try:
        return tensor.detach()
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, was_excluded)  # noqa: SLF001
