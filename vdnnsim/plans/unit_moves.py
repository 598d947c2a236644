"""Units that move to another pool where PyTorch's rules leave a block no room in its own.

A layout says in which pool the blocks of a unit lie; at which of its addresses, PyTorch's allocator decides. Where it
would take a segment beyond those that are reserved, the unit moves to the pool with the smallest free block that is
large enough then, but to none in which a large block begins while a block of the unit lives. In one layout of GPT-2 36
of 747 units do, and then all of its blocks have room.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from vdnnsim.memory.caching import pytorch_allocator
from vdnnsim.memory.online import Block
from vdnnsim.memory.packing import Lifetime
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.segments import LARGEST_SMALL_BYTES
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.plans.device_requests import Asked
from vdnnsim.plans.pool_units import Unit


@dataclass(frozen=True)
class UnitMoves:
    """Requests of units in pools.

    Attributes:
        asked: of several iterations, in their pools.
        begin: position of the first behind those that make a reservation.
        segments: by pool, bytes of those that are reserved; all of PyTorch's own need not be named.
        pools: of units that are in private ones.
        units: by operation.
        blocks: of an iteration, and their units.
    """

    asked: Sequence[Asked]
    begin: int
    segments: Mapping[int, Sequence[int]]
    pools: Mapping[Unit, int]
    units: Mapping[int, Unit]
    blocks: Sequence[tuple[Unit | None, Lifetime]]

    def moved(self, capacity_bytes: int, granule_bytes: int, settings: AllocatorSettings) -> dict[Unit, int]:
        """Return units and the pools in which they have room, up to the first that has none anywhere."""
        allocator = pytorch_allocator(capacity_bytes, granule_bytes, settings)
        held, found, private = dict[int, Block](), dict[Unit, int](), self.segments.keys() - {0}
        for position, (operation, request) in enumerate(self.asked):
            if request.nbytes is None:
                allocator.free(held.pop(request.key))
                continue
            nbytes, unit, pool = round_up(request.nbytes, granule_bytes), self.units.get(operation), request.pool
            is_large = nbytes > LARGEST_SMALL_BYTES and not request.stream
            if unit is not None and is_large and position >= self.begin:
                pool = found.get(unit, pool)
                free = {each: allocator.largest_free(nbytes, each) for each in (0, *private)}
                if free[pool] < nbytes:
                    roomy = sorted((room, each) for each, room in free.items() if room >= nbytes)
                    others = [each for _, each in roomy if not self._is_in_the_way(unit, each)]
                    if not others:
                        break
                    found[unit] = pool = others[0]
            block = allocator.take(nbytes, request.stream, pool)
            if block is None:
                break
            held[request.key] = block
        return found

    def _is_in_the_way(self, unit: Unit, pool: int) -> bool:
        """Whether a large block of a private pool begins while one of the unit lives."""
        return any(life.first < begin < life.last for life in self._lives[unit] for begin in self._begins[pool])

    @cached_property
    def _lives(self) -> Mapping[Unit | None, list[Lifetime]]:
        found = defaultdict[Unit | None, list[Lifetime]](list)
        for unit, life in self.blocks:
            found[unit].append(life)
        return found

    @cached_property
    def _begins(self) -> Mapping[int, list[int]]:
        """By private pool, when its blocks begin that take at least half of its largest segment."""
        found = defaultdict[int, list[int]](list)
        for unit, life in self.blocks:
            pool = 0 if unit is None else self.pools.get(unit, 0)
            if pool and life.nbytes >= max(self.segments[pool]) / 2:
                found[pool].append(life.first)
        return found
