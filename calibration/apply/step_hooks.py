"""One step of a user's loop, followed save by save and take by take, and what is done of a plan at each of them."""

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import RLock, get_ident
from typing import TYPE_CHECKING

import torch
from torch import nn

from calibration.apply.forward_watch import ForwardWatch
from calibration.apply.plan_actions import Action, Again, Come, Forget, Give, Leave
from calibration.apply.recomputation import can_remake, remake
from calibration.apply.saved_storage import Held, Packed
from calibration.apply.weak_methods import weakly
from calibration.capture.nodes import is_in_backward
from calibration.capture.storages import element_type_of

if TYPE_CHECKING:
    from calibration.apply.loop import Loop


@dataclass
class StepLog:
    """What a step did.

    Attributes:
        offloaded_bytes, fetched_bytes: that were moved.
        order: the moves in the order in which they began, as `leave`, `give`, `come` or `again` and a number.
        on_demand: storages that backward waited for, because they had not begun to come.
        departure: where the step left what was captured; empty where it did not.
    """

    offloaded_bytes: int = 0
    fetched_bytes: int = 0
    order: list[tuple[str, int]] = field(default_factory=list)
    on_demand: list[int] = field(default_factory=list)
    departure: str = ""


class Following:
    """One step; it lives as long as autograd keeps what was saved in it, for nothing that it holds holds it.

    Attributes:
        number: among the steps of its plan, from 1 on.
        log: what it did.
    """

    def __init__(self, loop: "Loop", model: nn.Module) -> None:
        self._loop, self._agenda, self._tape = loop, loop.agenda, loop.agenda.tape
        self._model = weakref.ref(model)
        self.number = next(loop.numbers)
        self._stream = loop.lane.current()
        self.log = StepLog()
        # Several threads may run backward of a step at once.
        self._lock = RLock()
        self._again = weakly(self._remake)
        self._next = 0
        self._moment = 0
        self._numbers: dict[int, int] = {}  # identity of a live storage, and its number
        self._identities: dict[int, int] = {}
        self._held: weakref.WeakValueDictionary[int, Held] = weakref.WeakValueDictionary()
        self._watch: ForwardWatch | None = None
        # What autograd never keeps, and what it has not begun to.
        self._unsaved: dict[int, Held] = {}
        self._to_be_saved: dict[int, Held] = {}
        agenda = self._agenda
        if agenda.again:
            self._watch = ForwardWatch(
                loop.captured.operations,
                agenda.again,
                loop.made_by,
                loop.writers,
                weakly(self._hold_made),
                weakly(self._known),
                weakly(self.depart),
                partial(loop.lane.is_current, self._stream),
            )

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow what runs within."""
        with ExitStack() as stack:
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack))
            model = self._model()
            if self._watch is not None and model is not None:
                stack.enter_context(self._watching(model, self._watch))
            yield

    @contextmanager
    def _watching(self, model: nn.Module, watch: ForwardWatch) -> Iterator[None]:
        """Watch the operations of the model's forward: autograd takes other ways where operations are watched."""
        entered: list[bool] = []
        # Of which alone what is saved is followed; others may run the model meanwhile.
        thread = get_ident()

        def enter(_: nn.Module, __: object) -> None:
            if get_ident() != thread:
                return
            entered.append(torch.is_grad_enabled() and not entered and not is_in_backward())
            if entered[-1]:
                watch.__enter__()  # type: ignore[no-untyped-call]

        def leave(_: nn.Module, __: object, ___: object) -> None:
            # PyTorch calls it without the other where a hook of the user's failed before.
            if get_ident() == thread and entered and entered.pop():
                watch.__exit__(None, None, None)

        hooks = [model.register_forward_pre_hook(enter), model.register_forward_hook(leave, always_call=True)]
        try:
            yield
        finally:
            for each in hooks:
                each.remove()
            if any(entered):
                # An interrupt of the user's, after which PyTorch calls no hooks.
                watch.__exit__(None, None, None)

    def depart(self, why: str) -> None:
        """Do nothing more of the plan in this step."""
        if not self.log.departure:
            self.log.departure = why
            self._to_be_saved.clear()
            if self._watch is not None:
                self._watch.is_following = False
            # At last, for the user may have warnings raised.
            self._loop.warn(why)

    def _pack(self, tensor: torch.Tensor) -> Packed:
        with self._lock:
            if self._watch is None:
                return self._packed(tensor)
            with self._watch.aside():
                return self._packed(tensor)

    def _packed(self, tensor: torch.Tensor) -> Packed:
        if self.log.departure or is_in_backward():
            return self._loop.room.packed(tensor, self._model())
        if self._next >= len(self._tape.saves):
            self.depart(f"more is saved than the {len(self._tape.saves)} tensors that were captured")
            return Packed(tensor, None, None)
        save, expected = self._next, self._tape.saves[self._next]
        if why := self._difference(tensor, save):
            self.depart(why)
            return Packed(tensor, None, None)
        self._next += 1
        number, held = expected.storage, None
        # Kernels hand out a few numbers on the host, as the seeds of attention with dropout.
        if tensor.device == self._loop.device and (number in self._agenda.moved or number in self._agenda.remade):
            held = self._to_be_saved.pop(number, None) or self._held.get(number)
            held = held or self._new(number, tensor.untyped_storage())
        packed = Packed(tensor, save, held)
        self._come_to(save)
        return packed

    def _difference(self, tensor: torch.Tensor, save: int) -> str:
        expected = self._tape.saves[save]
        if not self._loop.lane.is_current(self._stream) and expected.storage not in self._tape.aside:
            return f"save {save} is on another stream than the one on which the step began"
        shape, kind = tuple(tensor.shape), element_type_of(tensor)
        captured = self._loop.captured.storages[expected.storage]
        if captured.nbytes == 0:
            # What a library keeps, and says only when it runs.
            return ""
        if shape != expected.shape or kind != expected.element_type:
            return (
                f"save {save} is {kind} {list(shape)}, expected {expected.element_type} {list(expected.shape)} "
                f"({captured.name})"
            )
        storage = tensor.untyped_storage()
        identity, number = storage._cdata, expected.storage  # noqa: SLF001 - its identity
        if number in self._agenda.moved and storage.nbytes() != captured.nbytes:
            return f"save {save} lies in {storage.nbytes()} bytes, expected {captured.nbytes} ({captured.name})"
        if number in self._agenda.moved or number in self._agenda.remade:
            known = self._identities.get(number)
            if known is not None and known != identity:
                return f"save {save} is another tensor than was saved before ({captured.name})"
            if self._numbers.get(identity, number) != number:
                return f"save {save} shares its memory with another that was captured apart ({captured.name})"
            if known is None:
                self._identify(storage, number)
        return ""

    def _identify(self, storage: torch.UntypedStorage, number: int) -> None:
        """Know a live storage by its number until it dies: another may then have its identity."""
        identity = storage._cdata  # noqa: SLF001
        self._numbers[identity] = number
        self._identities[number] = identity
        weakref.finalize(storage, _forget, self._numbers, self._identities, identity)

    def _new(self, number: int, live: torch.UntypedStorage) -> Held:
        held = Held(number, live, self._loop.lane, self._stream, self._loop.arena, self.number)
        self._held[number] = held
        return held

    def _hold_made(self, number: int, live: torch.UntypedStorage) -> Held | None:
        """Return what is held of a storage that an operation of forward has just made, if it can run again."""
        is_remakable = number in self._loop.remakable
        if not is_remakable and number not in self._agenda.moved:
            return None
        held = self._new(number, live)
        self._identify(live, number)
        if number in self._loop.saved:
            self._to_be_saved[number] = held
        else:
            # Autograd never keeps it, so the step does not either until it is made again.
            self._unsaved[number] = held
            held.remake = partial(self._again, number)
            held.live = None
        return held if is_remakable else None

    def _known(self, live: torch.UntypedStorage) -> Held | None:
        number = self._numbers.get(live._cdata)  # noqa: SLF001
        return None if number is None else self._held.get(number)

    def _remake(self, number: int) -> None:
        assert self._watch is not None, "recipes were written down"
        self.log.order.append(("again", number))
        remake(number, self._loop, self._watch.recipes, self._note_demand)

    def _unpack(self, packed: Packed) -> torch.Tensor:
        packed.check()
        with self._lock:
            if packed.save is not None and not self.log.departure:
                take = self._loop.takes.get(packed.save)
                if take is not None:
                    self._come_to(take)
            held = packed.held
            if held is not None and held.live is None and held.is_away:
                self._note_demand(held)
            return packed.unpack()

    def _note_demand(self, held: Held) -> None:
        """Note that all of a storage comes now, because somebody waits for it."""
        self.log.on_demand.append(held.number)
        self.log.fetched_bytes += held.away_bytes

    def _come_to(self, moment: int) -> None:
        """Do what is due up to a moment."""
        while self._moment <= moment:
            due = self._agenda.actions[self._moment]
            self._moment += 1
            for action in due:
                self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, Again):
            self._run_again(action.operation)
            return
        held = self._held.get(action.storage)
        if held is None:
            return
        match action:
            case Leave(storage=storage, extent=extent, offset=offset):
                if held.device == self._loop.device and held.leave(extent, offset):
                    self.log.offloaded_bytes += len(extent)
                    self.log.order.append(("leave", storage))
            case Give(storage=storage):
                if self._watch is not None and can_remake(storage, self._loop, self._watch.recipes):
                    held.remake = partial(self._again, storage)
                if held.give():
                    self.log.order.append(("give", storage))
            case Come(storage=storage, extent=extent):
                if held.come(extent):
                    self.log.fetched_bytes += len(extent)
                    self.log.order.append(("come", storage))
            case Forget():
                held.forget()

    def _run_again(self, operation: int) -> None:
        if self._watch is None or operation not in self._watch.recipes:
            return
        recipe = self._watch.recipes[operation]
        for _, held in recipe.wanted:
            if held.live is None:
                held.bring()


def _forget(numbers: dict[int, int], identities: dict[int, int], identity: int) -> None:
    identities.pop(numbers.pop(identity, -1), None)
