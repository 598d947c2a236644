"""Segments that PyTorch's allocator has in a process, and requests that bring an empty one into their state.

A loop begins among blocks that are there already: weights leave free blocks in their segments, in which requests of a
step find room, and other tensors of the process have segments of their own.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import NamedTuple

from vdnnsim.memory.requests import Request, round_up
from vdnnsim.memory.segments import LARGEST_SMALL_BYTES


class Use(Enum):
    """Of a block: by a tensor that the plan knows, which it may count or not, by another, or by none."""

    PLANNED = "planned"
    OTHER = "other"
    FREE = "free"


class LiveBlock(NamedTuple):
    """A block, and what was requested of it."""

    nbytes: int
    requested_bytes: int
    use: Use


@dataclass(frozen=True, slots=True)
class LiveSegment:
    """A segment with its blocks in ascending order, of the small pool or of the large one."""

    is_small: bool
    blocks: tuple[LiveBlock, ...]


@dataclass(frozen=True, slots=True)
class LiveSegments:
    """Segments of the default settings, in the order of their addresses.

    Attributes:
        has_states: whether optimizer states are among planned blocks.
    """

    segments: tuple[LiveSegment, ...]
    has_states: bool

    @property
    def other_bytes(self) -> int:
        """Bytes in use by tensors that the plan does not know."""
        blocks = chain.from_iterable(each.blocks for each in self.segments)
        return sum(each.nbytes for each in blocks if each.use is Use.OTHER)

    def requests(self, keys: Mapping[int, int], free_keys: Iterator[int], granule_bytes: int) -> list[Request]:
        """Return the requests of an empty allocator that lead to these segments.

        `keys` have bytes, and are given to planned blocks of as many, in order; planned blocks that get none are free.
        All else has `free_keys`. All segments are taken whole at first; then one at a time is freed and its blocks are
        requested, which find no other room.
        """
        found, freed = list[Request](), list[Request]()
        of_bytes = defaultdict[int, list[int]](list)
        for key, nbytes in reversed([*keys.items()]):
            of_bytes[round_up(nbytes, granule_bytes)].append(key)

        def taken(nbytes: int, *, is_small: bool) -> list[Request]:
            return [Request(next(free_keys), each) for each in _pieces(nbytes, is_small=is_small)]

        wholes = [taken(sum(each.nbytes for each in one.blocks), is_small=one.is_small) for one in self.segments]
        found += chain.from_iterable(wholes)
        for segment, whole in zip(self.segments, wholes, strict=True):
            found += _freeing(whole)
            for block in segment.blocks:
                alike = of_bytes.get(round_up(block.requested_bytes, granule_bytes))
                if block.use is Use.PLANNED and alike:
                    found.append(Request(alike.pop(), block.nbytes))
                    continue
                pieces = taken(block.nbytes, is_small=segment.is_small)
                found += pieces
                if block.use is not Use.OTHER:
                    freed += _freeing(pieces)
        return found + freed


def _pieces(nbytes: int, *, is_small: bool) -> Iterator[int]:
    """Yield the sizes of requests that together fill so many bytes of one of both pools."""
    while is_small and nbytes > LARGEST_SMALL_BYTES:
        yield LARGEST_SMALL_BYTES
        nbytes -= LARGEST_SMALL_BYTES
    yield nbytes


def _freeing(requests: Iterable[Request]) -> list[Request]:
    return [Request(each.key, None) for each in requests]
