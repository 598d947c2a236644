"""Placement ahead of time: addresses that are chosen by the lifetimes of a static plan.

Offline dynamic storage allocation is NP-hard; this is the usual greedy solution: buffers that live throughout lie at
the bottom, the others are placed from the largest to the smallest, each at the lowest address that is free during its
lifetime. Lifetimes are half-open ranges of positions in the sequence of requests.

Source of the heuristic: Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020
(greedy by size for offset calculation).
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from vdnnsim.memory.requests import Overflow, Placed, Request, round_up

_BUCKETS = 128


@dataclass(frozen=True, slots=True)
class _Lifetime:
    key: int
    first: int
    last: int
    nbytes: int


class _Layout:
    """Addresses so far; each lifetime is entered in every bucket of positions that it overlaps."""

    def __init__(self, positions: int) -> None:
        self._width = positions // _BUCKETS + 1
        self._buckets: list[list[tuple[int, int, int, int]]] = [[] for _ in range(_BUCKETS + 1)]

    def lay(self, life: _Lifetime, floor: int) -> int:
        """Give a lifetime the lowest address at or above `floor` that is free while it lasts."""
        buckets = range(life.first // self._width, (life.last - 1) // self._width + 1)
        # Each bucket is sorted by address; a set, because one neighbour may stand in several buckets.
        neighbours = {
            entry
            for bucket in buckets
            for entry in self._buckets[bucket]
            if entry[2] < life.last and life.first < entry[3]
        }
        address = floor
        for start, end, _, _ in sorted(neighbours):
            if start - address >= life.nbytes:
                break
            address = max(address, end)
        for bucket in buckets:
            insort(self._buckets[bucket], (address, address + life.nbytes, life.first, life.last))
        return address


def place_planned(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Choose all addresses, then check that they stay within the capacity."""
    lifetimes = _lifetimes(requests, granule_bytes)
    first_release = next((i for i, request in enumerate(requests) if request.nbytes is None), len(requests))
    last_allocation = max((life.first for life in lifetimes), default=0)
    address: dict[int, int] = {}
    floor = 0
    others = []
    for life in lifetimes:
        if life.first < first_release and life.last > last_allocation:
            address[life.first] = floor
            floor += life.nbytes
        else:
            others.append(life)
    layout = _Layout(len(requests))
    for life in sorted(others, key=lambda life: (-life.nbytes, life.first)):
        address[life.first] = layout.lay(life, floor)
    return _answer(requests, lifetimes, address, capacity_bytes)


def _lifetimes(requests: Sequence[Request], granule_bytes: int) -> list[_Lifetime]:
    ends: dict[int, int] = {}
    lifetimes = []
    for position, request in reversed(list(enumerate(requests))):
        if request.nbytes is None:
            ends[request.key] = position
        else:
            last = ends.pop(request.key, len(requests))
            lifetimes.append(_Lifetime(request.key, position, last, round_up(request.nbytes, granule_bytes)))
    return lifetimes[::-1]


def _answer(
    requests: Sequence[Request], lifetimes: list[_Lifetime], address: dict[int, int], capacity_bytes: int
) -> Placed | Overflow:
    offsets, deltas = [0] * len(requests), [0] * len(requests)
    for life in lifetimes:
        offsets[life.first], deltas[life.first] = address[life.first], life.nbytes
        if life.last < len(requests):
            offsets[life.last], deltas[life.last] = address[life.first], -life.nbytes
    highest = max((address[life.first] + life.nbytes for life in lifetimes), default=0)
    if highest > capacity_bytes:
        return _overflow(lifetimes, address, deltas, capacity_bytes)
    return Placed(tuple(offsets), tuple(deltas), highest)


def _overflow(lifetimes: list[_Lifetime], address: dict[int, int], deltas: list[int], capacity_bytes: int) -> Overflow:
    """Report the first request at which more is in use than the capacity.

    If there is none, fragmentation is the cause: of the requests beyond the capacity the one with most memory in use.
    """
    in_use = list(accumulate(deltas))
    too_much = [life for life in lifetimes if in_use[life.first] > capacity_bytes]
    beyond = [life for life in lifetimes if address[life.first] + life.nbytes > capacity_bytes]
    blamed = too_much[0] if too_much else max(beyond, key=lambda life: (in_use[life.first], -life.first))
    held = tuple(life.key for life in lifetimes if life.first < blamed.first < life.last)
    free = capacity_bytes - (in_use[blamed.first] - blamed.nbytes)
    return Overflow(blamed.first, held, free, min(free, max(0, capacity_bytes - address[blamed.first])))
