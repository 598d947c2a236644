"""Rules of recomputation in a loop and its prediction: which operations recompute a storage, and whether they can."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from calibration.apply import recipe
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

    @property
    def is_simple(self) -> bool:
        """Whether what it writes is its own, and what it reads is not written later in forward."""


def can_recompute(number: int, schedule: LiveSchedule, recipes: Mapping[int, Recipe[Storage]]) -> bool:
    """Return whether all writers of a storage can be recomputed, and what they read is unchanged or recomputed too."""
    writers, recomputed = schedule.writers, schedule.recomputed
    if number not in schedule.recomputable or number not in recomputed:
        return False
    made = [(each, recipes[each]) for each in writers[number] if each in recipes]
    # A kernel may return its argument where a new storage was captured, as cuDNN an LSTM's weights.
    if len(made) < len(writers[number]) or number not in [each.number for _, one in made for each in one.wanted]:
        return False
    if len(made) == 1 and made[0][1].is_simple:
        return True
    for each, by in {storage.number: by for by, one in made for storage in one.read}.items():
        if each != number and writers[each] and writers[each][-1] > by:
            is_gone = each in schedule.recomputable and (each in recomputed or each not in schedule.saved)
            if not is_gone:
                return False
    return True


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


def is_current(number: int, schedule: LiveSchedule, recipes: Mapping[int, recipe.Recipe]) -> bool:
    """Return whether no operand of what recomputes a storage was written since by anything but an operation."""
    wanted, seen = [number], {number}
    while wanted:
        for operation in writing(wanted.pop(), schedule, recipes):
            made = recipes[operation]
            if made.is_stale:
                return False
            for each in made.read:
                is_rewritten = not made.is_simple and schedule.writers[each.number][-1] > operation
                if each.number not in seen and (is_rewritten or (each.live is None and not each.is_on_host)):
                    seen.add(each.number)
                    # What is read before a later write is recomputed with it, though it may be live now.
                    if is_rewritten or each.number not in schedule.saved:
                        wanted.append(each.number)
    return True


def refuse_rewritten(
    operations: Iterable[int], schedule: LiveSchedule, recipes: Mapping[int, recipe.Recipe], issued: int
) -> None:
    """Refuse to recompute operations that read a live storage as it was before a later write.

    The storage was to be released and recomputed too, but was kept: an operand was written since by a user's function.
    `issued` operations of forward have run.

    Raises:
        RuntimeError: one of them would read what a later operation wrote.
    """
    for operation in operations:
        for each in recipes[operation].read:
            later = schedule.writers[each.number][-1]
            if each.live is not None and operation < later < issued:
                captured = schedule.captured
                raise RuntimeError(
                    f"{captured.operations[operation].name} needed to recompute a part of forward reads "
                    f"{captured.storages[each.number].name}, which has been modified by an inplace operation "
                    f"({captured.operations[later].name}) that cannot be recomputed, for a tensor that it reads has "
                    "been modified since; clone that tensor before it is modified"
                )


def writing(number: int, schedule: LiveSchedule, recipes: Mapping[int, Recipe[Storage]]) -> set[int]:
    """Return the operations that write a storage, and those that read it before the last of these has."""
    writers = schedule.writers[number]
    if len(writers) == 1:
        return {*writers} if writers[0] in recipes else set()
    between = (each for each in schedule.readers.get(number, ()) if writers[0] < each < writers[-1])
    return {each for each in (*writers, *between) if each in recipes}
