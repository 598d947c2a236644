"""Fixed regions of memory that stays of buffers share: a few of the largest spaces, reused again and again.

There are as many regions as are wanted at once at the most, and as large as that many of the largest buffers (Layrub,
3.3: "two pairs or more of the largest memory spaces"), each counted once however often it comes. A stay takes the
smallest free region that holds it; where none does, the largest of them grows. How Layrub deals with such a case is not
in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Stay:
    """A buffer on the GPU from one step of an iteration to another, both included; None for a space kept free."""

    buffer: int | None
    nbytes: int
    first: int
    last: int

    def of_buffer(self, buffer: int) -> "Stay":
        """Return the stay with its buffer."""
        return replace(self, buffer=buffer)


@dataclass(frozen=True, slots=True)
class Regions:
    """Regions and who lies where.

    Attributes:
        sizes: bytes of each region.
        region_of: the region of each stay, in the order in which they were given.
    """

    sizes: tuple[int, ...]
    region_of: tuple[int, ...]


def share_regions(stays: Sequence[Stay]) -> Regions:
    """Lay out stays; those that begin with the same step take their regions in the order given."""
    count = _most_at_once(stays)
    spaces = {(stay.buffer, number if stay.buffer is None else 0): stay.nbytes for number, stay in enumerate(stays)}
    sizes = sorted(spaces.values(), reverse=True)[:count]
    sizes += [0] * (count - len(sizes))
    busy_until = [-1] * count
    region_of = [-1] * len(stays)
    for number in sorted(range(len(stays)), key=lambda number: stays[number].first):
        stay = stays[number]
        free = [region for region in range(count) if busy_until[region] < stay.first]
        fitting = [region for region in free if sizes[region] >= stay.nbytes]
        if fitting:
            region = min(fitting, key=lambda region: (sizes[region], region))
        else:
            region = max(free, key=lambda region: (sizes[region], -region))
            sizes[region] = stay.nbytes
        busy_until[region] = stay.last
        region_of[number] = region
    return Regions(tuple(sizes), tuple(region_of))


def _most_at_once(stays: Sequence[Stay]) -> int:
    changes = sorted([(stay.first, 1) for stay in stays] + [(stay.last + 1, -1) for stay in stays])
    at_once = most = 0
    for _, change in changes:
        at_once += change
        most = max(most, at_once)
    return most
