"""Requests to a memory pool, and its two answers: placed or overflow.

A sequence of requests is an iteration as the pool sees it: keys are buffers, positions are time. A pool serves a whole
sequence at once, so that online models and those that plan ahead have the same interface.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

UNLIMITED_BYTES: Final = 2**60


class Request(NamedTuple):
    """Allocates nbytes for a key; frees the key if nbytes is None.

    Attributes:
        resizes: whether the key, which is in use, has nbytes from now on: parts of it are released or reallocated. Only
            models with extents can do so (`vdnnsim.memory.models.MODELS_WITH_EXTENTS`).
        searches: whether it is a search of cuDNN's: nbytes, or without room half as many and so on, are allocated and
            freed at once, and the cache is emptied. Only PyTorch's allocator can do so.
        stream: for which it is allocated; PyTorch's allocator has pools for each.
        pool: a private pool of PyTorch's allocator (`torch.cuda.MemPool`), from 1 on; 0 for its own.
    """

    key: int
    nbytes: int | None
    resizes: bool = False
    searches: bool = False
    stream: int = 0
    pool: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """Every request was served.

    Attributes:
        offsets: by position of the request, the address allocated or freed; None for a model without addresses.
        deltas: by position, change of the bytes in use, rounded to the granule.
        pool_bytes: memory that the model needed, gaps between buffers included.
    """

    offsets: tuple[int | None, ...]
    deltas: tuple[int, ...]
    pool_bytes: int
    peaks_in_search: bool = False


@dataclass(frozen=True, slots=True)
class Overflow:
    """A request could not be served, with the keys in use then.

    Attributes:
        short_bytes: by which memory that is reserved ahead is too small for what is live at once, wherever it lies.
        lacking_bytes: by which it is for blocks in no segments of others, or else their lowest layout too high.
        tries: reservations that were tried; 0 without any.
    """

    position: int
    held: tuple[int, ...]
    free_bytes: int
    largest_free_bytes: int
    short_bytes: int = 0
    lacking_bytes: int = 0
    tries: int = 0


def most_in_use_bytes(requests: Iterable[Request], granule_bytes: int) -> int:
    """Return the most bytes that are in use at once, wherever they lie."""
    held, most_bytes, in_use_bytes = dict[int, int](), 0, 0
    for request in requests:
        in_use_bytes -= held.pop(request.key, 0)
        if request.nbytes is not None:
            held[request.key] = round_up(request.nbytes, granule_bytes)
            in_use_bytes += held[request.key]
            most_bytes = max(most_bytes, in_use_bytes)
    return most_bytes


def fullest_overflow(
    requests: Sequence[Request], keys: int, capacity_bytes: int, granule_bytes: int, lacking_bytes: int
) -> Overflow:
    """Return the overflow, by so many bytes, of the request with which most is in use by keys below a number."""
    held, most_bytes, in_use_bytes = dict[int, int](), 0, 0
    found = Overflow(0, (), capacity_bytes, 0)
    for position, request in enumerate(requests):
        if request.key >= keys:
            continue
        in_use_bytes -= held.pop(request.key, 0)
        if request.nbytes is None:
            continue
        nbytes, left_bytes = round_up(request.nbytes, granule_bytes), capacity_bytes - in_use_bytes
        if in_use_bytes + nbytes > most_bytes:
            most_bytes = in_use_bytes + nbytes
            largest_bytes = min(max(0, nbytes - lacking_bytes), left_bytes)
            found = Overflow(position, tuple(held), left_bytes, largest_bytes)
        held[request.key] = nbytes
        in_use_bytes += nbytes
    return found


def round_up(nbytes: int, granule_bytes: int) -> int:
    """Return nbytes rounded up to a whole number of granules; a request of nothing takes nothing."""
    return -(-nbytes // granule_bytes) * granule_bytes
