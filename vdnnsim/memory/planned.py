"""Placement ahead of time: addresses that are chosen by the lifetimes of a static plan.

Buffers that live throughout lie at the bottom, the others are packed above them (`vdnnsim.memory.packing`). Lifetimes
are half-open ranges of positions in the sequence of requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from vdnnsim.memory.packing import Lifetime, pack
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up


@dataclass(frozen=True, slots=True)
class _Lifetime:
    key: int
    first: int
    last: int
    nbytes: int


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
    layout = pack([Lifetime(life.nbytes, life.first, life.last) for life in others])
    address |= {life.first: floor + offset for life, offset in zip(others, layout.offsets, strict=True)}
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
