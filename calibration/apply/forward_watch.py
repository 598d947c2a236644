"""A dispatch mode that follows forward of a model and makes recipes of operations to recompute."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import get_ident
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from calibration.apply.live_schedule import ExpectedOperation, LiveSchedule
from calibration.apply.recipe import Drawn, Kept, Recipe, Settings, View
from calibration.apply.saved_storage import SavedStorage, TensorLayout, empty_of
from calibration.capture.called_models import called_in
from calibration.capture.nodes import is_in_backward
from calibration.capture.schemas import (
    RECORD_STREAM,
    is_random,
    operands_of,
    tensors_in,
    with_leaves_replaced,
)

_AS_IT_IS: Final = nullcontext()
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


class _HookOfStep:
    """A hook that does nothing in a copy of its model, which is of no step, and that a pickled one loads without us."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *given: object) -> None:
        self._call(*given)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (_AS_IT_IS, "__exit__")


class Step(Protocol):
    """The step of the forward."""

    def storage_made(self, number: int, live: torch.UntypedStorage) -> SavedStorage | None:
        """Return a storage made by an operation of forward, if it can be recomputed."""

    def known(self, live: torch.UntypedStorage) -> SavedStorage | None:
        """Return the saved storage of a live one, if it has one."""

    def depart(self, why: str) -> None:
        """Leave the plan for the rest of the step."""


class ForwardWatch(TorchDispatchMode):
    """Compares operations of forward to the captured ones, and keeps recipes of those to recompute.

    Args:
        is_on_stream: whether the step's stream is current.
        using: returns a context that allocates from a private pool.
        device_type: of the model.
    """

    def __init__(
        self,
        schedule: LiveSchedule,
        step: Step,
        is_on_stream: Callable[[], bool],
        using: Callable[[int], AbstractContextManager[None]],
        device_type: str,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device_type = device_type
        self._schedule, self._step, self._is_on_stream, self._using = schedule, step, is_on_stream, using
        self._expected = schedule.expected_operations
        self.issued = 0
        self.recipes: dict[int, Recipe] = {}
        self.is_following = True
        self._is_aside = False
        # Tensors that the latest operation writes, whose versions its recipe needs.
        self._written: list[Kept] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: Dynamo compiles nothing within a mode, and to say so takes longer than a small operator."""
        return False

    def __exit__(self, *raised: object) -> None:
        self.count_writes()
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Watch forward of the model alone: autograd differs under a dispatch mode."""
        entered: list[bool] = []
        # Other threads may run the model meanwhile.
        thread = get_ident()
        begins = (each.start for each in self._schedule.tape.forwards)

        def enter(_: nn.Module, __: object) -> None:
            if get_ident() != thread:
                return
            entered.append(torch.is_grad_enabled() and not entered and not is_in_backward())
            if entered[-1]:
                # What ran between calls is of the loss, and was not watched.
                self.issued = next(begins, self.issued)
                self.__enter__()  # type: ignore[no-untyped-call]

        def leave(_: nn.Module, __: object, ___: object) -> None:
            # Called without `enter` if a user's hook failed before.
            if get_ident() == thread and entered and entered.pop():
                self.__exit__(None, None, None)

        # Before those of the user, whose operations are captured, too.
        hooks = [
            hook
            for each in called_in(model)
            for hook in (
                each.register_forward_pre_hook(_HookOfStep(enter), prepend=True),
                each.register_forward_hook(_HookOfStep(leave), always_call=True),
            )
        ]
        try:
            yield
        finally:
            for each in hooks:
                each.remove()
            if any(entered):
                # After an interrupt PyTorch calls no hooks.
                self.__exit__(None, None, None)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Ignore operations within, which are not of the program."""
        self.count_writes()
        before, self._is_aside = self._is_aside, True
        try:
            yield
        finally:
            self._is_aside = before

    def __torch_dispatch__(
        self,
        func: OpOverload,
        _: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator returns
        kwargs = kwargs or {}
        if self._written:
            self.count_writes()
        called = _called(func)
        if called.is_left_out or self._is_aside or not self.is_following:
            return func(*args, **kwargs)
        expected = self._expected[self.issued]
        if expected.name != called.name:
            if called.name in _MAKES_NOTHING:
                return func(*args, **kwargs)
            expected = self._skipped_to()
        operands = tensors_in(args)
        if kwargs:
            operands += tensors_in(kwargs)
        storages = [each.untyped_storage() for each in operands]
        if not self._is_on_stream() and (expected.is_recomputed or any(map(self._step.known, storages))):
            self.is_following = False
            self._step.depart(f"{func} runs on another stream than the one on which the step began")
            return func(*args, **kwargs)
        recipe = self._recipe(func, called, args, kwargs, operands, storages) if expected.is_recomputed else None
        with self._using(expected.pool) if self._schedule.pools else _AS_IT_IS:
            result = func(*args, **kwargs)
        inputs = {each._cdata for each in storages}  # noqa: SLF001 - its identity
        stored = ((at, each.untyped_storage()) for at, each in enumerate(tensors_in(result)))
        new = [(at, each) for at, each in stored if each._cdata not in inputs]  # noqa: SLF001
        # Empty ones are placeholders, as the state of a dropout with p = 0.
        makes = new if expected.name == called.name else [each for _, each in new if each.nbytes()]
        if not makes and not (
            called.is_mutable and any(is_written for _, is_written in operands_of(func, args, kwargs))
        ):
            return result
        if expected.name != called.name:
            self.is_following = False
            self._step.depart(f"{func} runs where {expected.name} was captured")
            return result
        made = []
        for (index, storage), number in zip(new, expected.makes, strict=False):
            held = None if number is None else self._step.storage_made(number, storage)
            if held is not None:
                made.append((index, weakref.ref(held)))
        if recipe is not None:
            recipe.made = made
            self.recipes[self.issued] = recipe
        self.issued += 1
        return result

    def _skipped_to(self) -> ExpectedOperation:
        """Return the next captured operation that makes something."""
        while self._expected[self.issued].name in _MAKES_NOTHING:
            self.issued += 1
        return self._expected[self.issued]

    def count_writes(self) -> None:
        """Note versions after the latest operation, which PyTorch counts when it has returned.

        A write of a schema may not be counted, as the noise of `rrelu_with_noise`; a user's function may count twice.
        """
        if self._written:
            for each in self._written:
                each.version = min(each.version + 1, each.kept._version)  # noqa: SLF001 - PyTorch has no public one
            self._written.clear()

    def _recipe(
        self,
        func: OpOverload,
        called: _Called,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        operands: Sequence[torch.Tensor],
        storages: Sequence[torch.UntypedStorage],
    ) -> Recipe:
        """Return the recipe of an operation before it runs, which holds no storage that may be released."""
        writers, saved = self._schedule.writers, self._schedule.saved
        drawn = Drawn.by(args, kwargs) if called.is_random else None
        writes = set[int]()
        if called.is_mutable:
            writes.update(id(each) for each, is_written in operands_of(func, args, kwargs) if is_written)
        read: list[SavedStorage] = []
        counted: list[Kept] = []
        others: list[torch.Tensor] = []
        references: list[View | Kept] = []
        is_simple = self.issued in self._schedule.alone
        # `detach` shares the version counter, but below autograd it makes a new one.
        key = torch._C.DispatchKey.ADInplaceOrView  # noqa: SLF001 - there is no public one
        was_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(key)  # noqa: SLF001
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)  # noqa: FBT003, SLF001
        try:
            for tensor, storage in zip(operands, storages, strict=True):
                held = self._step.known(storage)
                if held is not None:
                    read.append(held)
                    references.append(View(held, TensorLayout.of(tensor)))
                    # What autograd never saves is recomputed from what it was, whoever wrote to it since, and so is
                    # what the step itself writes later, after this operation.
                    is_rewritten = writers[held.number][-1] > self.issued
                    is_simple = is_simple and not is_rewritten
                    if is_rewritten or held.number not in saved or tensor.is_inference():
                        continue
                counter = tensor.detach()
                reference = Kept(counter, counter._version, counter.shape)  # noqa: SLF001
                if id(tensor) in writes:
                    self._written.append(reference)
                counted.append(reference)
                if held is None:
                    others.append(counter)
                    references.append(reference)
                else:
                    counter.data = empty_of(tensor.dtype, tensor.device)
        finally:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, was_excluded)  # noqa: SLF001
        found = iter(references)
        args = with_leaves_replaced(torch.Tensor, lambda _: next(found), args)
        if kwargs:
            kwargs = with_leaves_replaced(torch.Tensor, lambda _: next(found), kwargs)
        settings = Settings.now(self._device_type)
        return Recipe(func, args, kwargs, drawn, torch.is_grad_enabled(), settings, read, counted, others, is_simple)
