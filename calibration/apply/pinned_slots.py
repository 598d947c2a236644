"""Slots of pinned memory, shared by the steps of a loop, with the storages that own them."""

from collections.abc import Iterable
from threading import Lock
from typing import Protocol
from weakref import ReferenceType, ref

import torch

from calibration.executor.pinned_arena import HostMemory, PinnedArena
from vdnnsim.errors import InternalError


class Owner(Protocol):
    """A storage of a step, which owns a slot."""

    number: int
    step: int


class PinnedSlots(PinnedArena):
    """The pinned memory of a plan. All steps use the same slots, so one step at a time offloads.

    A storage owns its slot from the begin of its offload to the begin of its prefetch, or until it dies. Copies of a
    loop run in order, so a later copy into a slot follows earlier ones. Unpinning waits for the device.

    Args:
        places: offset and bytes of each copy to the host.
    """

    def __init__(self, device: HostMemory, places: Iterable[tuple[int, int]]) -> None:
        super().__init__(device)
        # Weak: autograd may drop a storage at any time in any thread.
        self._owners = dict[tuple[int, int], ReferenceType[Owner]]()
        self._overlapping = _overlapping(places)
        self._step = 0
        self._lock = Lock()

    @property
    def is_used(self) -> bool:
        return any(each() is not None for each in list(self._owners.values()))

    def open(self, step: int) -> bool:
        """Let a step offload instead of earlier ones; return whether no slot was in use."""
        with self._lock:
            if self.is_used:
                return False
            self._step = step
            return True

    def write(self, owner: Owner, offset: int, nbytes: int) -> torch.Tensor | None:
        """Return a slot to offload a storage to, which then owns it; None if its step may not."""
        with self._lock:
            if owner.step != self._step:
                return None
            for other in self._overlapping[offset, nbytes]:
                self._owners.pop(other, None)
            self._owners[offset, nbytes] = ref(owner)
            return self.slice(offset, nbytes)

    def read(self, owner: Owner, offset: int, nbytes: int) -> torch.Tensor:
        """Return a slot to prefetch a storage from, or raise InternalError where the storage does not own it."""
        found = self._owner(offset, nbytes)
        if found is not owner:
            holds = "nothing that a step needs" if found is None else f"storage {found.number} of step {found.step}"
            raise InternalError(
                f"storage {owner.number} of step {owner.step} is to be prefetched, but its slot holds {holds}: a bug "
                "of vdnnsim; no gradient was computed with it"
            )
        return self.slice(offset, nbytes)

    def free(self, owner: Owner, offset: int, nbytes: int) -> None:
        """Free a slot, if the storage owns it."""
        if self._owner(offset, nbytes) is owner:
            self._owners.pop((offset, nbytes), None)

    def _owner(self, offset: int, nbytes: int) -> Owner | None:
        found = self._owners.get((offset, nbytes))
        return None if found is None else found()

    def give_back_unused(self) -> None:
        """Unpin the memory, unless it is used."""
        with self._lock:
            if not self.is_used:
                self.give_back()

    def give_back(self) -> None:
        """Unpin the memory, and drop all owners."""
        self._owners.clear()
        self._step = 0
        super().give_back()


def _overlapping(places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    # Earlier ones, by offset, that have not ended.
    running: list[tuple[int, int]] = []
    for place in sorted(set(places)):
        running = [each for each in running if sum(each) > place[0]]
        found[place] = list(running)
        for each in running:
            found[each].append(place)
        running.append(place)
    return found
