"""Rules of recomputation in a loop and its prediction: which operations recompute a storage, and whether they can."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from calibration.apply.live_schedule import LiveSchedule


class Storage(Protocol):
    """A storage of a live step."""

    @property
    def number(self) -> int:
        """In the captured step."""

    @property
    def is_live(self) -> bool:
        """Whether it is on the device."""

    @property
    def is_on_host(self) -> bool:
        """Whether its content is on the host alone, or being prefetched."""


Kind = TypeVar("Kind", bound=Storage)
Kind_co = TypeVar("Kind_co", bound=Storage, covariant=True)


class Recipe(Protocol[Kind_co]):
    """An operation that may be recomputed."""

    @property
    def read(self) -> Iterable[Kind_co]:
        """Storages that it reads, which may have been released."""

    @property
    def wanted(self) -> Iterable[Kind_co]:
        """Its results that are still needed."""


def can_recompute(number: int, schedule: LiveSchedule, recipes: Mapping[int, Recipe[Storage]]) -> bool:
    """Return whether all writers of a storage can be recomputed, and what they read is unchanged or recomputed too."""
    writers, recomputed = schedule.writers, schedule.recomputed
    if number not in schedule.recomputable or number not in recomputed:
        return False
    made = [each for each in writers[number] if each in recipes]
    read = {storage.number: each for each in made for storage in recipes[each].read if storage.number != number}
    later = [each for each, by in read.items() if writers[each] and writers[each][-1] > by]
    gone = (each in schedule.recomputable and (each in recomputed or each not in schedule.saved) for each in later)
    # A kernel may return its argument where a new storage was captured, as cuDNN an LSTM's weights.
    is_made = any(storage.number == number for each in made for storage in recipes[each].wanted)
    return is_made and len(made) == len(writers[number]) and all(gone)


def recomputing(
    number: int, schedule: LiveSchedule, recipes: Mapping[int, Recipe[Kind]], note_demand: Callable[[Kind], object]
) -> list[int]:
    """Return the operations that recompute a storage and released operands, in the order of forward.

    `note_demand` is called with storages that must be copied from the host.
    """
    operations: set[int] = set()
    wanted, seen = [number], {number}
    while wanted:
        found = writing(wanted.pop(), schedule, recipes) - operations
        operations |= found
        for storage in (each for one in found for each in (*recipes[one].read, *recipes[one].wanted)):
            if not storage.is_live and storage.number not in seen:
                seen.add(storage.number)
                if storage.is_on_host:
                    note_demand(storage)
                else:
                    wanted.append(storage.number)
    return sorted(operations)


def writing(number: int, schedule: LiveSchedule, recipes: Mapping[int, Recipe[Storage]]) -> set[int]:
    """Return the operations that write a storage, and those that read it before the last of these has."""
    writers = schedule.writers[number]
    between = (each for each in schedule.readers.get(number, ()) if writers[0] < each < writers[-1])
    return {each for each in (*writers, *between) if each in recipes}
