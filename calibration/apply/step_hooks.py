"""Hooks on one step of a live loop, which do the actions of its schedule at saves and unpacks."""

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from threading import RLock
from typing import Final

import torch
from torch import nn

from calibration.apply.forward_watch import ForwardWatch
from calibration.apply.live_schedule import Action, ExpectedSave, Free, Offload, Prefetch, Recompute, Release
from calibration.apply.loop_state import LoopState, StepLog
from calibration.apply.private_pools import PrivatePools
from calibration.apply.recipe import Recipe
from calibration.apply.recomputation import can_recompute, is_current, recomputing, refuse_rewritten
from calibration.apply.saved_storage import LiveStorages, SavedStorage, SavedTensor
from calibration.capture.nodes import is_in_backward
from calibration.capture.storages import element_type_of
from calibration.capture.wrapped import is_in_compiled_call
from vdnnsim.plans.pool_units import Use

_PLAIN: Final = (torch.Tensor, nn.Parameter)
_without_modes: Final = torch._C._DisableTorchDispatch  # noqa: SLF001 - there is no public one


def _use_on_gradient(pools: PrivatePools, log: StepLog, pool: int, _: torch.Tensor) -> None:
    """Allocate from a pool from the gradient of a tensor on, unless the step left its plan."""
    if not log.departure:
        pools.use(pool)


class StepHooks:
    """One step, which lives as long as autograd keeps its saved tensors.

    Attributes:
        number: among the steps of its plan, from 1 on.
    """

    def __init__(self, loop: LoopState, model: nn.Module) -> None:
        self._loop, self._schedule, self._tape = loop, loop.schedule, loop.schedule.tape
        self._expected_saves, self._unpack_points = loop.schedule.expected_saves, loop.schedule.unpack_points
        self._actions = loop.schedule.actions
        self._model = weakref.ref(model)
        self.number = next(loop.numbers)
        self._stream = loop.copy_stream.current()
        self.log = StepLog()
        # Several threads may run backward of one step.
        self._lock = RLock()
        self._next_save = 0
        self._next_point = 0
        self._live = LiveStorages()
        self._storages: weakref.WeakValueDictionary[int, SavedStorage] = weakref.WeakValueDictionary()
        # Storages that autograd never saves, and that it has not saved yet.
        self._unsaved: dict[int, SavedStorage] = {}
        self._to_be_saved: dict[int, SavedStorage] = {}
        self._watch: ForwardWatch | None = None
        self._pools = loop.reservation.pools
        self._pools_at, self._pools_on_arrival = loop.schedule.pools_at, loop.schedule.pools_on_arrival
        if self._schedule.recomputed_operations or self._schedule.pools_in_forward:
            is_on_stream = partial(loop.copy_stream.is_current, self._stream)
            step, device_type = weakref.proxy(self), loop.device.type
            self._watch = ForwardWatch(self._schedule, step, is_on_stream, self._pools.using, device_type)
        self._recipes: dict[int, Recipe] = {} if self._watch is None else self._watch.recipes

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install hooks of saved tensors and the watch of forward."""
        with ExitStack() as stack:
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack))
            model = self._model()
            if self._watch is not None and model is not None:
                stack.enter_context(self._watch.watching(model))
            stack.callback(self._pools.use, 0)
            yield

    def depart(self, why: str) -> None:
        if not self.log.departure:
            self.log.departure = why
            self._pools.use(0)
            self._to_be_saved.clear()
            if self._watch is not None:
                self._watch.is_following = False
            # Last, for warnings may be raised as errors.
            self._loop.warn(why)

    def _pack(self, tensor: torch.Tensor) -> SavedTensor:
        with self._lock:
            if self._watch is None:
                return self._packed(tensor)
            # Not of the program. Without the dispatcher it costs a fraction, but a subclass of tensors needs it.
            self._watch.count_writes()
            with _without_modes() if type(tensor) in _PLAIN else self._watch.aside():
                return self._packed(tensor)

    def _packed(self, tensor: torch.Tensor) -> SavedTensor:
        if self.log.departure or is_in_backward():
            return self._loop.reservation.save(tensor, self._model())
        save = self._next_save
        expected = self._expected_saves[save] if save < len(self._expected_saves) else None
        if why := self._difference(tensor, save, expected):
            self.depart(why)
            return SavedTensor(tensor)
        assert expected is not None, "it does not differ"
        self._next_save += 1
        if save == 0 and is_in_compiled_call():
            self._loop.tell_of_compiled_call()
        storage = None
        # Attention with dropout saves its seed on the host.
        if expected.is_moved and tensor.device == self._loop.device:
            number = expected.storage
            storage = self._to_be_saved.pop(number, None) or self._storages.get(number)
            storage = storage or self._new(number, tensor.untyped_storage())
        packed = SavedTensor(tensor, save, storage)
        pool = self._pools_on_arrival.get(save)
        if pool is not None and tensor.grad_fn is not None:
            tensor.register_hook(partial(_use_on_gradient, self._pools, self.log, pool))  # type: ignore[no-untyped-call]
        self._reach(save)
        return packed

    def _difference(self, tensor: torch.Tensor, save: int, expected: ExpectedSave | None) -> str:
        """Return how a tensor differs from the captured save; empty if it does not."""
        if expected is None:
            return f"more is saved than the {save} tensors that were captured"
        # A CPU has none.
        if self._stream is not None and not expected.is_aside and not self._loop.copy_stream.is_current(self._stream):
            return f"save {save} is on another stream than the one on which the step began"
        if expected.nbytes == 0:
            return ""
        is_alike = tensor.shape == expected.shape and tensor.dtype is expected.dtype
        if is_alike and not expected.is_moved:
            return ""
        name = self._schedule.captured.storages[expected.storage].name
        if not is_alike:
            return (
                f"save {save} is {element_type_of(tensor)} {list(tensor.shape)}, expected "
                f"{self._tape.saves[save].element_type} {list(expected.shape)} ({name})"
            )
        storage, number = tensor.untyped_storage(), expected.storage
        if expected.is_offloaded and storage.nbytes() != expected.nbytes:
            return f"save {save} lies in {storage.nbytes()} bytes, expected {expected.nbytes} ({name})"
        noted = self._live.number(storage)
        if noted != number and self._live.is_known(number):
            return f"save {save} is another tensor than was saved before ({name})"
        if noted is None:
            self._live.note(number, storage)
        elif noted != number:
            return f"save {save} shares its memory with another that was captured apart ({name})"
        return ""

    def _new(self, number: int, live: torch.UntypedStorage) -> SavedStorage:
        loop = self._loop
        pools = self._schedule.pools
        using = partial(self._pools.using, pools.get((Use.PREFETCH, number), 0)) if pools else nullcontext
        storage = SavedStorage(number, live, loop.copy_stream, self._stream, loop.arena, self.number, using)
        self._storages[number] = storage
        return storage

    def storage_made(self, number: int, live: torch.UntypedStorage) -> SavedStorage | None:
        """Return a storage made by an operation of forward, if it can be recomputed."""
        is_recomputable = number in self._schedule.recomputable
        # Forward may be followed for the pools alone.
        if not is_recomputable and not (self._schedule.recomputed_operations and number in self._schedule.offloaded):
            return None
        storage = self._new(number, live)
        self._live.note(number, live)
        if number in self._schedule.saved:
            self._to_be_saved[number] = storage
        else:
            # Never saved, so it is released until it is recomputed.
            self._unsaved[number] = storage
            storage.recompute = self._recomputing(number)
            storage.live = None
        return storage if is_recomputable else None

    def known(self, live: torch.UntypedStorage) -> SavedStorage | None:
        number = self._live.number(live)
        return None if number is None else self._storages.get(number)

    def _recomputing(self, number: int) -> "partial[None]":
        """Return a function that recomputes a storage, without a reference to the step."""
        return partial(StepHooks._recompute, weakref.proxy(self), number)

    def _recompute(self, number: int) -> None:
        self.log.order.append(("recompute", number))
        recipes = self._recipes
        operations = recomputing(number, self._schedule, recipes, self._note_demand)
        if self._watch is not None:
            refuse_rewritten(operations, self._schedule, recipes, self._watch.issued)
        for each in operations:
            recipes[each].check()
            self._run(each, recipes[each])
        for each in operations:
            del recipes[each]

    def _run(self, operation: int, recipe: Recipe) -> None:
        if pools := self._schedule.pools:
            with self._pools.using(pools.get((Use.REPEAT, operation), 0)):
                recipe.run()
        else:
            recipe.run()
        if self._stream is not None:
            # It may be of another stream's pool, as a prefetched batch.
            for tensor in recipe.kept:
                self._loop.copy_stream.lend(tensor)

    def _run_early(self, operation: int) -> None:
        """Recompute an operation before backward needs it, unless an operand was written since."""
        recipe = self._recipes.get(operation)
        wanted = [each for each in recipe.wanted if each.live is None] if recipe else ()
        if not recipe or not wanted:
            return
        if recipe.is_simple and recipe.is_ready and not any(each.is_on_host for each in wanted):
            # Most are: nothing else is recomputed with it.
            if not recipe.is_stale:
                self.log.order.append(("recompute", wanted[0].number))
                with self._loop.copy_stream.on(self._stream):
                    self._run(operation, recipe)
                del self._recipes[operation]
            return
        for each in wanted:
            # A written operand is refused only if backward needs the storage.
            if not each.is_live and is_current(each.number, self._schedule, self._recipes):
                each.materialize()

    def _is_recomputable(self, number: int) -> bool:
        """Whether a storage can be recomputed, and no operand has a new version that no operation made.

        As by `mark_dirty` of a user's function, whose storage is kept.
        """
        schedule, recipes = self._schedule, self._recipes
        return can_recompute(number, schedule, recipes) and is_current(number, schedule, recipes)

    def _free(self, storage: SavedStorage) -> None:
        """Free a storage, unless an operation that reads it has yet to run again, as where it was not run early."""
        readers = self._recipes.keys() & self._schedule.readers.get(storage.number, ())
        # Not only what they make: what they write in place is another's.
        if not any(number in self._storages for each in readers for number in self._schedule.written_by.get(each, ())):
            storage.free()

    def _unpack(self, packed: SavedTensor) -> torch.Tensor:
        packed.check()
        with self._lock:
            if self.log.departure:
                # Backward may run in another thread than the departure.
                self._pools.use(0)
            elif packed.save is not None:
                point = self._unpack_points.get(packed.save)
                if point is not None:
                    self._reach(point)
            storage = packed.storage
            if storage is not None and not storage.is_live and storage.is_on_host:
                self._note_demand(storage)
            return packed.unpack()

    def _note_demand(self, storage: SavedStorage) -> None:
        self.log.on_demand.append(storage.number)
        self.log.fetched_bytes += storage.host_bytes

    def _reach(self, point: int) -> None:
        while self._next_point <= point:
            reached, self._next_point = self._next_point, self._next_point + 1
            for action in self._actions[reached]:
                self._do(action)
            if self._pools_at:
                self._pools.use(self._pools_at[reached])

    def _do(self, action: Action) -> None:
        if isinstance(action, Recompute):
            self._run_early(action.operation)
            return
        number = action.storage
        storage = self._storages.get(number)
        if storage is None:
            return
        match action:
            case Offload(extent=extent, offset=offset):
                if storage.device == self._loop.device and storage.offload(extent, offset):
                    self.log.offloaded_bytes += len(extent)
                    self.log.order.append(("offload", number))
            case Release():
                if self._is_recomputable(number):
                    storage.recompute = self._recomputing(number)
                if storage.release():
                    self.log.order.append(("release", number))
            case Prefetch(extent=extent):
                if storage.prefetch(extent):
                    self.log.fetched_bytes += len(extent)
                    self.log.order.append(("prefetch", number))
            case Free():
                self._free(storage)
