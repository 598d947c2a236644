"""Fixed regions of memory that stays of buffers share: a few of the largest spaces, reused again and again.

Layrub (3.3) selects "two pairs or more of the largest memory spaces" before training begins. How is read from its
source: each buffer takes the first region that is free, which grows to hold it, or a new one where none is
(github.com/CGCL-codes/Layrub at 0657919, src/caffe/net.cpp, getMemoryBlock).
"""

from collections.abc import Iterable
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


def share_regions(stays: Iterable[Stay]) -> Regions:
    """Lay out stays; those that begin with the same step take their regions in the order given."""
    numbered = sorted(enumerate(stays), key=lambda each: each[1].first)
    sizes: list[int] = []
    busy_until: list[int] = []
    region_of: dict[int, int] = {}
    for number, stay in numbered:
        region = next((i for i, until in enumerate(busy_until) if until < stay.first), len(sizes))
        if region == len(sizes):
            sizes.append(0)
            busy_until.append(-1)
        sizes[region] = max(sizes[region], stay.nbytes)
        busy_until[region] = stay.last
        region_of[number] = region
    return Regions(tuple(sizes), tuple(region_of[number] for number in range(len(region_of))))
