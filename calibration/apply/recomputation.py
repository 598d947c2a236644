"""Rules of recomputation, in a loop and as predicted: which operations make a storage again, and whether they can."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from calibration.apply.live_schedule import LiveSchedule


class Storage(Protocol):
    """A storage while a step lives."""

    @property
    def number(self) -> int:
        """Of the captured step."""

    @property
    def is_live(self) -> bool:
        """Whether it is in memory of the device."""

    @property
    def is_on_host(self) -> bool:
        """Whether its only content lies in pinned memory, or is being copied from there."""


Kind = TypeVar("Kind", bound=Storage)
Kind_co = TypeVar("Kind_co", bound=Storage, covariant=True)


class Recipe(Protocol[Kind_co]):
    """An operation that may run again."""

    @property
    def read(self) -> Iterable[Kind_co]:
        """What it reads that may have been released."""

    @property
    def wanted(self) -> Iterable[Kind_co]:
        """What it makes that is still wanted."""


def can_recompute(number: int, schedule: LiveSchedule, recipes: Mapping[int, Recipe[Storage]]) -> bool:
    """Return whether what made a storage can run again: nothing that it read is written over, but with it."""
    writers, recomputed = schedule.writers, schedule.recomputed
    if number not in schedule.recomputable or number not in recomputed:
        return False
    made = [each for each in writers[number] if each in recipes]
    read = {storage.number: each for each in made for storage in recipes[each].read if storage.number != number}
    later = [each for each, by in read.items() if writers[each] and writers[each][-1] > by]
    gone = (each in schedule.recomputable and (each in recomputed or each not in schedule.saved) for each in later)
    # A library may hand on what it was given where new memory was captured, as cuDNN the weights of an LSTM.
    is_made = any(storage.number == number for each in made for storage in recipes[each].wanted)
    return is_made and len(made) == len(writers[number]) and all(gone)


def recomputing(
    number: int, schedule: LiveSchedule, recipes: Mapping[int, Recipe[Kind]], note_demand: Callable[[Kind], object]
) -> list[int]:
    """Return the operations that recompute a storage, and what they read that is not there, in the order of forward.

    `note_demand` is called with what has to be copied from the host for it.
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
