"""Which operations of forward run again to make a storage anew, and whether they can."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from calibration.apply.recipe import Recipe
from calibration.apply.saved_storage import Held

if TYPE_CHECKING:
    from calibration.apply.loop import Loop


def can_remake(number: int, loop: "Loop", recipes: Mapping[int, Recipe]) -> bool:
    """Return whether what made a storage can run again: nothing that it read is written over, but with it."""
    writers, remade = loop.writers, loop.agenda.remade
    if number not in loop.remakable or number not in remade:
        return False
    made = [each for each in writers[number] if each in recipes]
    read = {held.number: each for each in made for held in recipes[each].read if held.number != number}
    later = [each for each, by in read.items() if writers[each] and writers[each][-1] > by]
    gone = (each in loop.remakable and (each in remade or each not in loop.saved) for each in later)
    # A library may hand on what it was given where new memory was captured, as cuDNN the weights of an LSTM.
    is_made = any(held.number == number for each in made for _, held in recipes[each].wanted)
    return is_made and len(made) == len(writers[number]) and all(gone) and _are_current(number, loop, recipes)


def _are_current(number: int, loop: "Loop", recipes: Mapping[int, Recipe]) -> bool:
    """Return whether nothing that would be read got another version by what no operation shows.

    As by `mark_dirty` of a function of the user's: what it wrote is not known, so its storage stays. Of what was saved
    and given up this was asked when it was.
    """
    wanted, seen = [number], {number}
    while wanted:
        for recipe in (recipes[each] for each in _together(wanted.pop(), loop, recipes)):
            if recipe.is_stale:
                return False
            absent = {each.number for each in recipe.read if each.live is None and not each.is_away}
            wanted += absent - seen - loop.saved
            seen |= absent
    return True


def remake(number: int, loop: "Loop", recipes: dict[int, Recipe], note_demand: Callable[[Held], None]) -> None:
    """Run what made a storage again, with what it reads that is not there, in the order of forward.

    Args:
        number: of the storage.
        loop: whose step it is of.
        recipes: by operation; those whose results are all there are dropped.
        note_demand: is told of what has to come from the host for it.
    """
    operations: set[int] = set()
    wanted, seen = [number], {number}
    while wanted:
        found = _together(wanted.pop(), loop, recipes) - operations
        operations |= found
        for held in (held for each in found for held in recipes[each].touched):
            if held.live is None and held.number not in seen:
                seen.add(held.number)
                if held.is_away:
                    note_demand(held)
                else:
                    wanted.append(held.number)
    for each in sorted(operations):
        recipes[each].run()
        # What a program made on another stream, as a batch that was fetched ahead, is freed to that one's pool.
        for tensor in recipes[each].kept:
            loop.lane.lend(tensor)
    for each in operations:
        if recipes[each].is_done:
            # With it goes what it holds of what it read.
            del recipes[each]


def _together(number: int, loop: "Loop", recipes: Mapping[int, Recipe]) -> set[int]:
    """Return the operations that write a storage, and those that read it before the last of these has."""
    writers = loop.writers[number]
    between = (each for each in loop.readers.get(number, ()) if writers[0] < each < writers[-1])
    return {each for each in (*writers, *between) if each in recipes}
