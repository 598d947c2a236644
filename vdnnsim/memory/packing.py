"""Offline packing: addresses for blocks whose lifetimes are known, as low as possible altogether.

No layout is lower than the most bytes that live at once. Blocks are placed one after the other, each at the lowest
address that is free during its lifetime: the largest first, those with most bytes times lifetime first, and those that
live longest first. While a layout reaches above the bound, the blocks that do are placed earlier the next time. That
ends after a number of rounds that depends on the number of blocks alone, so that the same blocks get the same layout.

To pack with the least height is NP-hard. Sources: Pisarchyk and Lee, "Efficient memory management for deep neural net
inference", 2020 (greedy by size for offset calculation); Maas et al., "TelaMalloc", ASPLOS 2023, and Moffitt,
"MiniMalloc", ASPLOS 2023 (orders by size, area and lifetime, each block at the lowest address); Joslin and Clements,
"Squeaky wheel optimization", JAIR 1999 (what was placed badly goes first).
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from vdnnsim.memory.requests import Overflow, Placed, Request, round_up

Integers = npt.NDArray[np.int64]

MOST_ROUNDS: Final = 64
PLACED_BLOCKS: Final = 50_000
"""Blocks that are placed in all rounds of an order, at most, but for the first round."""
STILL: Final = 12
"""Rounds without a lower layout after which a goal is given up."""
MOST_REMEMBERED: Final = 4096
"""Blocks of which it is remembered which others live beside them, at most."""
_BEYOND: Final = 1 << 62
_SHARE: Final = 0.2
"""Of all blocks, how many places a block moves ahead each time that it lies above the bound; the largest twice."""


class Lifetime(NamedTuple):
    """A block and the half-open range of time in which it lives."""

    nbytes: int
    first: int
    last: int


class Packing(NamedTuple):
    """A layout; none is lower than `bound_bytes`."""

    offsets: tuple[int, ...]
    height_bytes: int
    bound_bytes: int


def pack(lives: Sequence[Lifetime]) -> Packing:
    """Return the lowest of `packings` with nothing among them."""
    return min(packings(lives), key=lambda each: each.height_bytes)


def packings(
    lives: Sequence[Lifetime],
    among: Sequence[tuple[int, Lifetime]] = (),
    goal_bytes: int | None = None,
    first_order: int = 0,
) -> Iterator[Packing]:
    """Yield the lowest layout of each order of blocks, until one reaches the goal, by default the bound.

    `among` are blocks that have addresses.
    """
    sizes, first, last = np.array(lives, np.int64).reshape(len(lives), 3).T
    blocks = _Blocks(lives, among)
    bound_bytes = most_live_bytes(lives)
    still = MOST_ROUNDS if goal_bytes is None else STILL
    if goal_bytes is None:
        goal_bytes = bound_bytes
    span = last - first
    # Beside those with addresses, blocks with the least room go first.
    taken = _live_bytes([life for _, life in among], int(last.max(initial=0)))
    most_taken = np.array([taken[begin:end].max(initial=0) for begin, end in zip(first, last, strict=True)], np.int64)
    orders = ((first, -sizes, -most_taken), (first, -sizes * span), (-sizes, -span))
    for order in map(np.lexsort, orders[first_order:]):
        offsets, height_bytes = _improved(blocks, order, goal_bytes, still)
        yield Packing(tuple(offsets.tolist()), height_bytes, bound_bytes)
        if height_bytes <= goal_bytes:
            break


def most_live_bytes(lives: Sequence[Lifetime]) -> int:
    return int(_live_bytes(lives, 0).max(initial=0))


def _live_bytes(lives: Sequence[Lifetime], end: int) -> Integers:
    """Return the live bytes by time, at least until `end`."""
    sizes, first, last = np.array(lives, np.int64).reshape(len(lives), 3).T
    change = np.zeros(max(end, int(last.max(initial=0))) + 1, np.int64)
    np.add.at(change, first, sizes)
    np.subtract.at(change, last, sizes)
    return change.cumsum()


def _improved(blocks: "_Blocks", order: Integers, goal_bytes: int, still: int) -> tuple[Integers, int]:
    """Place blocks in an order, and again with those ahead that lay above the goal; return the lowest layout.

    That ends after `still` rounds without a lower one.
    """
    sizes, number = blocks.sizes, len(blocks.sizes)
    turn = np.empty(number)
    turn[order] = np.arange(number)
    before, best = np.full(number, -1), np.zeros(number, np.int64)
    least_bytes, lowest = np.iinfo(np.int64).max, 0
    for at in range(min(MOST_ROUNDS, max(1, PLACED_BLOCKS // max(1, number)))):
        order = np.argsort(turn, kind="stable")
        # Those before the first that moved stay where they are.
        (moved,) = (order != before).nonzero()
        same = int(moved[0]) if len(moved) else number
        before, offsets = order, blocks.placed(order[same:])
        ends = offsets + sizes
        height_bytes = int(ends.max(initial=0))
        if height_bytes < least_bytes:
            least_bytes, best, lowest = height_bytes, offsets, at
        above = ends > goal_bytes
        # Those that went first already do so again.
        is_stuck = same == number and above[order[: above.sum()]].all()
        if height_bytes <= goal_bytes or is_stuck or at - lowest >= still:
            break
        turn[above] -= _SHARE * number * (0.5 + sizes[above] / sizes.max())
    return best, least_bytes


class _Blocks:
    """Blocks that are placed again and again, among others that have addresses.

    Two more, below and above all addresses and at all times, are the walls of the first and of the last gap.
    """

    def __init__(self, lives: Sequence[Lifetime], among: Sequence[tuple[int, Lifetime]]) -> None:
        always = Lifetime(0, -_BEYOND, _BEYOND)
        all_lives = [*lives, *(life for _, life in among), always, always]
        sizes, self._first, self._last = np.array(all_lives, np.int64).reshape(len(all_lives), 3).T
        self.sizes, self._number = sizes[: len(lives)], len(lives)
        # Those that are not placed lie beyond all addresses.
        self._starts = np.array([*[_BEYOND] * len(lives), *(start for start, _ in among), -1, _BEYOND], np.int64)
        self._ends = self._starts + sizes
        self._ends[: len(lives)], self._ends[-2:] = _BEYOND, (0, _BEYOND)
        self._met = dict[int, Integers]()

    def placed(self, turns: Integers) -> Integers:
        """Return the offsets of all blocks, once some lie at the lowest address that is free when their turn comes."""
        starts, ends = self._starts, self._ends
        starts[turns] = ends[turns] = _BEYOND
        for block, nbytes in zip(turns.tolist(), self.sizes[turns].tolist(), strict=True):
            met = self._meeting(block)
            begins, stops = starts.take(met), ends.take(met)
            # As many begin below a gap as end there, so that it is seen in both orders, whichever belong together.
            begins.sort()
            stops.sort()
            start = int(stops[(begins[1:] - stops[:-1] >= nbytes).argmax()])
            starts[block], ends[block] = start, start + nbytes
        return starts[: self._number].copy()

    def _meeting(self, block: int) -> Integers:
        """Return which others live at some time of a block, with the walls and the block itself."""
        if block in self._met:
            return self._met[block]
        found: Integers = ((self._first < self._last[block]) & (self._last > self._first[block])).nonzero()[0]
        if self._number <= MOST_REMEMBERED:
            self._met[block] = found
        return found


def place_planned(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Choose all addresses by the lifetimes of a static plan, then check that they stay within the capacity.

    Buffers that live throughout lie at the bottom, the others are packed above them.
    """
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
    layout = pack(others)
    address |= {life.first: floor + offset for life, offset in zip(others, layout.offsets, strict=True)}
    return _answer(requests, lifetimes, address, capacity_bytes)


def _lifetimes(requests: Sequence[Request], granule_bytes: int) -> list[Lifetime]:
    ends: dict[int, int] = {}
    lifetimes = []
    for position, request in reversed(list(enumerate(requests))):
        if request.nbytes is None:
            ends[request.key] = position
        else:
            last = ends.pop(request.key, len(requests))
            lifetimes.append(Lifetime(round_up(request.nbytes, granule_bytes), position, last))
    return lifetimes[::-1]


def _answer(
    requests: Sequence[Request], lifetimes: list[Lifetime], address: dict[int, int], capacity_bytes: int
) -> Placed | Overflow:
    offsets, deltas = [0] * len(requests), [0] * len(requests)
    for life in lifetimes:
        offsets[life.first], deltas[life.first] = address[life.first], life.nbytes
        if life.last < len(requests):
            offsets[life.last], deltas[life.last] = address[life.first], -life.nbytes
    highest = max((address[life.first] + life.nbytes for life in lifetimes), default=0)
    if highest > capacity_bytes:
        return _overflow(requests, lifetimes, address, deltas, capacity_bytes)
    return Placed(tuple(offsets), tuple(deltas), highest)


def _overflow(
    requests: Sequence[Request],
    lifetimes: list[Lifetime],
    address: dict[int, int],
    deltas: list[int],
    capacity_bytes: int,
) -> Overflow:
    """Report the first request at which more is in use than the capacity.

    If there is none, fragmentation is the cause: of the requests beyond the capacity the one with most memory in use.
    """
    in_use = list(accumulate(deltas))
    too_much = [life for life in lifetimes if in_use[life.first] > capacity_bytes]
    beyond = [life for life in lifetimes if address[life.first] + life.nbytes > capacity_bytes]
    blamed = too_much[0] if too_much else max(beyond, key=lambda life: (in_use[life.first], -life.first))
    held = tuple(requests[life.first].key for life in lifetimes if life.first < blamed.first < life.last)
    free = capacity_bytes - (in_use[blamed.first] - blamed.nbytes)
    return Overflow(blamed.first, held, free, min(free, max(0, capacity_bytes - address[blamed.first])))
