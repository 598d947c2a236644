"""Search for a ring through all GPUs over the links between pairs of them."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

_MOST_TRIALS: Final = 10_000
"""About a second."""


def closed_ring(joined: Mapping[int, AbstractSet[int]]) -> tuple[int, ...] | None:
    """Return the first order in which each is joined to the next, and the last to the first; None if not found."""
    trials = 0

    def completed(order: tuple[int, ...], rest: frozenset[int]) -> tuple[int, ...] | None:
        nonlocal trials
        trials += 1
        if not rest:
            return order if order[0] in joined[order[-1]] else None
        if trials > _MOST_TRIALS or not _may_close(joined, order, rest):
            return None
        following = (completed((*order, each), rest - {each}) for each in sorted(joined[order[-1]] & rest))
        return next((each for each in following if each), None)

    first = next(iter(joined))
    return completed((first,), frozenset(joined) - {first})


def _may_close(joined: Mapping[int, AbstractSet[int]], order: tuple[int, ...], rest: frozenset[int]) -> bool:
    """Whether a path through the rest may lead from the last back to the first.

    The rest must be connected, and each must have two neighbours in the ring, unless there are two GPUs in all.
    """
    beside = rest | {order[0], order[-1]}
    if len(joined) > 2 and any(len(joined[each] & beside) < 2 for each in rest):
        return False
    reached, found = set[int](), {min(rest)}
    while found:
        reached |= found
        found = set[int]().union(*(joined[each] for each in found)) & rest - reached
    return reached == rest
