"""Slots of pinned memory that the steps of a loop share, each with the storage that owns it."""

from collections.abc import Iterable
from threading import Lock
from typing import Protocol
from weakref import WeakValueDictionary

import torch

from calibration.executor.pinned_arena import HostMemory, PinnedArena
from vdnnsim.errors import InternalError


class Owner(Protocol):
    """What a slot may hold: one storage of one step, by their numbers."""

    number: int
    step: int


class PinnedSlots(PinnedArena):
    """The pinned region of a plan, all of whose steps use the same slots, so that one step at a time offloads.

    A slot belongs to its owner from the copy to the host until the copy back has begun, or until the owner dies. The
    copies need not have ended: all of a loop's run one after another, in the order in which they were issued, so what
    is copied into a slot next waits for what reads or writes it now. Unpinning waits for the device.

    Whoever reads a slot is checked to be its owner; see `read`.

    Args:
        device: what pins.
        places: offset and bytes of each copy to the host.
    """

    def __init__(self, device: HostMemory, places: Iterable[tuple[int, int]]) -> None:
        super().__init__(device)
        # Weak, so that what autograd lets go of, whenever and in whatever thread, needs nothing in pinned memory.
        self._owners = WeakValueDictionary[tuple[int, int], Owner]()
        self._overlapping = _overlapping(places)
        self._step = 0
        # To find a slot unused and to take it is one.
        self._lock = Lock()

    @property
    def is_used(self) -> bool:
        """Whether a living step needs what is in a slot."""
        return len(self._owners) > 0

    def open(self, step: int) -> bool:
        """Let a step offload, and none before it any more; return whether none of these still needs a slot."""
        with self._lock:
            if self.is_used:
                return False
            self._step = step
            return True

    def write(self, owner: Owner, offset: int, nbytes: int) -> torch.Tensor | None:
        """Return a slot to copy a storage into, which is its owner's from now on; None where its step may not."""
        with self._lock:
            if owner.step != self._step:
                return None
            for other in self._overlapping[offset, nbytes]:
                self._owners.pop(other, None)
            self._owners[offset, nbytes] = owner
            return self.slice(offset, nbytes)

    def read(self, owner: Owner, offset: int, nbytes: int) -> torch.Tensor:
        """Return a slot to copy a storage back from.

        Raises:
            InternalError: it holds something else, or its memory was unpinned.
        """
        found = self._owners.get((offset, nbytes))
        if found is not owner:
            holds = "nothing that a step needs" if found is None else f"storage {found.number} of step {found.step}"
            raise InternalError(
                f"storage {owner.number} of step {owner.step} is to be prefetched, but its slot holds {holds}: a bug "
                "of vdnnsim; no gradient was computed with it"
            )
        return self.slice(offset, nbytes)

    def free(self, owner: Owner, offset: int, nbytes: int) -> None:
        """Let others have a slot, if it is the owner's."""
        if self._owners.get((offset, nbytes)) is owner:
            self._owners.pop((offset, nbytes), None)

    def give_back_unused(self) -> None:
        """Have no region, unless a living step needs it."""
        with self._lock:
            if not self.is_used:
                self.give_back()

    def give_back(self) -> None:
        """Unpin the region; its slots have no owners any more."""
        self._owners.clear()
        self._step = 0
        super().give_back()


def _overlapping(places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return by slot the others that have bytes of it."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    # Those before it, in the order of their offsets, that have not ended.
    running: list[tuple[int, int]] = []
    for place in sorted(set(places)):
        running = [each for each in running if sum(each) > place[0]]
        found[place] = list(running)
        for each in running:
            found[each].append(place)
        running.append(place)
    return found
