"""Requests to a memory pool, and its two answers: placed or overflow.

A sequence of requests is an iteration seen by the pool alone: keys stand for buffers, positions for time. A pool
answers the whole sequence at once, so that an online model and one that plans ahead look the same from outside.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

UNLIMITED_BYTES: Final = 2**60
"""The capacity of a memory that has none."""


class Request(NamedTuple):
    """Takes nbytes under a key; or, with nbytes None, gives back what the key holds.

    Attributes:
        resizes: whether the key, which is in use, holds nbytes from now on: extents of it were given back or taken
            again. Only a model that states a granule for them can do so (`vdnnsim.memory.models.extent_granule_bytes`).
        searches: whether it takes nbytes, where there is no room for them half as many and so on, and gives them back
            at once and with them to the GPU all that is free: a search of cuDNN's. PyTorch's allocator alone does so.
    """

    key: int
    nbytes: int | None
    resizes: bool = False
    searches: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """Every request was served.

    Attributes:
        offsets: by position of the request, the address given or given back; None under a model without addresses.
        deltas: by position, bytes in use added or taken away, rounded to the granule.
        pool_bytes: bytes of memory that the model needed, the gaps between buffers included.
        peaks_in_search: whether it needed as many for a search alone.
    """

    offsets: tuple[int | None, ...]
    deltas: tuple[int, ...]
    pool_bytes: int
    peaks_in_search: bool = False


@dataclass(frozen=True, slots=True)
class Overflow:
    """A request could not be served.

    Attributes:
        position: of the request in the sequence.
        held: the keys in use at that moment.
        free_bytes: memory not in use at that moment.
        largest_free_bytes: the largest piece of it.
    """

    position: int
    held: tuple[int, ...]
    free_bytes: int
    largest_free_bytes: int


def round_up(nbytes: int, granule_bytes: int) -> int:
    """Return nbytes rounded up to a whole number of granules; a request of nothing takes nothing."""
    return -(-nbytes // granule_bytes) * granule_bytes
