"""The search for the largest batch that fits, or the longest sequence, by the memory that some take."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vdnnsim.planning.deadline import NEVER, Deadline
from vdnnsim.scenario.read import LARGEST_BATCH

_ALWAYS_ESTIMATED: Final = 4
"""Estimates that are used even if they do not halve the interval; linear needs take no more."""
BEYOND: Final = 1.25
TRIED_BEYOND: Final = 12
"""How many larger batches are tried where memory may shrink as batches grow, and up to what multiple."""


@dataclass(frozen=True, slots=True)
class Need:
    """The memory of a batch.

    Attributes:
        share: of the capacity of GPU or host, the larger; an estimate that guides the search.
        is_sure: whether it fits even if its peak is too low by as much as peaks are known to be.
    """

    fits: bool
    share: float
    is_sure: bool = False


def find_edge(
    need: Callable[[int], Need | None], guess: int, largest: int = LARGEST_BATCH, deadline: Deadline = NEVER
) -> tuple[int, int]:
    """Return a batch that fits and the next larger one, which does not.

    The batch is 0 if one image does not fit, `largest` if that does. At the deadline, or where `need` returns None, the
    two may not be adjacent.
    """
    known: dict[int, Need] = {}
    low, high = 0, largest + 1
    batch, width = guess, high
    while high - low > 1 and not deadline.is_over and (needed := need(batch)) is not None:
        known[batch] = needed
        low, high = (batch, high) if needed.fits else (low, batch)
        closing, width = 2 * (high - low) <= width, high - low
        estimate = _where_full(known, batch) if closing or len(known) < _ALWAYS_ESTIMATED else None
        if estimate is None:
            estimate = 2 * low if high > largest else (low + high) // 2
        batch = min(max(estimate, low + 1), high - 1)
    return low, high


def beyond(need: Callable[[int], Need | None], batch: int, largest: int, deadline: Deadline = NEVER) -> tuple[int, int]:
    """Return a batch as `find_edge` does, not less than one that fits, where memory may shrink as batches grow.

    So does what PyTorch's allocator reserves. `TRIED_BEYOND` batches up to `BEYOND` times as large are tried, evenly
    apart, and again above each that fits.
    """

    def fits(one: int) -> bool:
        return one <= largest and not deadline.is_over and (needed := need(one)) is not None and needed.fits

    while True:
        step = max(1, int((BEYOND - 1) * batch) // TRIED_BEYOND)
        found = next((each for each in range(batch + TRIED_BEYOND * step, batch, -step) if fits(each)), None)
        if found is None and not fits(batch + 1):
            return batch, batch + 1
        batch, above = found or batch + 1, (found or batch) + step
        while above - batch > 1:
            middle = (batch + above) // 2
            batch, above = (middle, above) if fits(middle) else (batch, middle)


def _where_full(known: dict[int, Need], last: int) -> int | None:
    """Return the batch that would fill the memory, on a line through the last two, or through the origin for one."""
    others = [batch for batch in known if batch != last]
    other, share = (others[-1], known[others[-1]].share) if others else (0, 0.0)
    slope = (known[last].share - share) / (last - other)
    return int(min(last + (1 - known[last].share) / slope, 2 * LARGEST_BATCH)) if slope > 0 else None
