"""Memory that a loop under a plan reserves ahead, so that its blocks get the addresses that were planned for them.

It is one segment of PyTorch's own pool if that has room for every request, else several, most of them in private pools
(`torch.cuda.MemPool`) that the loop puts in use for the operations whose results lie there
(`vdnnsim.memory.private_pools`). What PyTorch's rules do within the pools is replayed, to the address, and the first
reservation with room is taken. It begins among the segments that the process has, whose free blocks serve steps, too.

Optimizer states that the first update makes are allocated in a private pool of their own, which is not reserved ahead:
amid the blocks of a step they would split it for good. With them is what such an update allocates between states.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress, count, takewhile
from typing import Final, NamedTuple

from vdnnsim.memory.live_segments import LiveSegments
from vdnnsim.memory.packing import Lifetime, most_live_bytes
from vdnnsim.memory.private_pools import Cut, PrivatePools
from vdnnsim.memory.requests import Overflow, Placed, Request, fullest_overflow
from vdnnsim.memory.segments import LARGEST_SMALL_BYTES, OWN_SEGMENT_BYTES
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.plans.buffers import states_of_update
from vdnnsim.plans.device_requests import Asked
from vdnnsim.plans.pool_units import Unit, large_blocks, units_of
from vdnnsim.plans.repetition import (
    are_small,
    buffer_of,
    first_products,
    free_blocks,
    leading_operations,
    makes_states_first,
    reserved_bytes,
    whole_pages,
)
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.plans.unit_moves import UnitMoves

SIZES: Final = tuple(LARGEST_SMALL_BYTES << at for at in range(6))
"""Of blocks, above each of which what they lack is counted."""
MOST_MOVES: Final = 3
"""How often units of a layout are moved to other pools."""
STATES: Final = 1
"""The private pool of optimizer states; those of blocks follow."""


@dataclass(frozen=True, slots=True)
class ReservedMemory:
    """What is reserved before the first step.

    Attributes:
        own_bytes: of the segment of PyTorch's own pool that has the rest of the memory.
        segments: by pool, bytes of the others; 0 is PyTorch's own.
        pools: private pools of units; the others use PyTorch's own.
        small_bytes: of segments for small blocks, in all pools.
        states_bytes: of segments of states that the first update makes in a pool of their own; 0 without one.
        capacity_bytes: of all segments.
        tries: reservations that were tried or laid out until this was found.
    """

    own_bytes: int
    segments: Mapping[int, Sequence[int]]
    pools: Mapping[Unit, int]
    small_bytes: int
    states_bytes: int
    capacity_bytes: int
    settings: AllocatorSettings
    tries: int = 1


class Reserved(NamedTuple):
    """The requests of several iterations, the first with those of a reservation, which end before `begin`."""

    iterations: list[list[Asked]]
    answer: Placed | Overflow
    memory: ReservedMemory
    begin: int

    def after(self, tries: int) -> "Reserved":
        return self._replace(memory=replace(self.memory, tries=tries))


@dataclass(frozen=True)
class Reserving:
    """Reserves memory for the requests of several iterations, once given buffers have theirs.

    Attributes:
        serve: replays PyTorch's allocator.
        boundaries: operations before which a loop can change the pool; None for all of forward, and for the first of
            backward that belong to one of forward.
        live: segments among which the loop begins; None for an empty pool. `capacity_bytes` are without those of
            other tensors there.
    """

    plan: TrainingPlan
    iterations: Sequence[Sequence[Asked]]
    capacity_bytes: int
    granule_bytes: int
    settings: AllocatorSettings
    serve: Callable[[Sequence[Asked]], Placed | Overflow]
    boundaries: AbstractSet[int] | None = None
    live: LiveSegments | None = None

    def in_one(self) -> Reserved | None:
        """Return the reservation of one segment if every request has room in it and no other is taken."""
        found = self._with(_WHOLE, self._first_state)
        fits = isinstance(found.answer, Placed) and found.answer.pool_bytes <= self._most_bytes
        return found if fits and found.memory.own_bytes else None

    def reserved(self) -> Reserved:
        """Return the first reservation with room for every request.

        If there is none, the overflow is of the request with which most is in use.
        """
        blocks = [life for _, life in self._blocks]
        whole = self._with(_WHOLE, self._first_state)
        lacking_bytes = most_live_bytes(blocks) - whole.memory.own_bytes
        if isinstance(whole.answer, Placed):
            return whole
        tries = 1
        if lacking_bytes <= 0 and not self.settings.expandable_segments:
            lacking = [_lacking_bytes(whole)]
            units = [self._units.get(operation) for operation, _ in self._blocks]
            for cut in PrivatePools(blocks, units, whole.memory.own_bytes).cuts():
                tries += 1
                if isinstance(cut, int):
                    lacking.append(cut)
                    continue
                found = self._with_moves(cut)
                if isinstance(found.answer, Placed):
                    return found.after(tries)
                lacking.append(_lacking_bytes(found))
            lacking_bytes = min(lacking)
        if self._first_state is not None and isinstance((amid := self._with(_WHOLE, None)).answer, Placed):
            return amid.after(tries + 1)
        short_bytes, lacking_bytes = self._short_bytes(whole.memory), max(1, lacking_bytes)
        buffers, granule_bytes = len(self.plan.buffers), self.granule_bytes
        overflow = fullest_overflow(_requests(whole), buffers, self.capacity_bytes, granule_bytes, lacking_bytes)
        answer = replace(overflow, short_bytes=short_bytes, lacking_bytes=lacking_bytes, tries=tries)
        return whole._replace(answer=answer)

    def _with_moves(self, cut: Cut) -> Reserved:
        """Serve the requests, and again with units in other pools where theirs have no room."""
        found, units = self._with(cut, self._first_state), [self._units.get(operation) for operation, _ in self._blocks]
        blocks = [(unit, life) for unit, (_, life) in zip(units, self._blocks, strict=True)]
        for _ in range(MOST_MOVES):
            if isinstance(found.answer, Placed):
                break
            memory, asked = found.memory, [*chain.from_iterable(found.iterations)]
            moves = UnitMoves(asked, found.begin, memory.segments, memory.pools, self._units, blocks)
            if not (moved := moves.moved(self._most_bytes, self.granule_bytes, self.settings)):
                break
            cut = cut._replace(pools={**cut.pools, **{unit: max(0, pool - STATES) for unit, pool in moved.items()}})
            found = self._with(cut, self._first_state)
        return found

    def _short_bytes(self, memory: ReservedMemory) -> int:
        """Return what blocks lack beside given buffers and states, wherever they lie; 0 where there is enough.

        Those of more than some size lie in what is reserved, or in free blocks of more in segments of given buffers.
        """
        head, *iterations = self._after_head
        free = free_blocks((each.request for each in head), self.granule_bytes, self.settings)
        made = states_of_update(self.plan.workload.step)
        states = [each.request.nbytes or 0 for each in iterations[0] if each.request.key in made]
        room_bytes = memory.own_bytes + memory.states_bytes

        def lacking_bytes(least_bytes: int) -> int:
            blocks = [life for _, life in self._blocks if life.nbytes > least_bytes]
            made_bytes, free_bytes = (sum(each for each in sizes if each > least_bytes) for sizes in (states, free))
            return most_live_bytes(blocks) + made_bytes - free_bytes - room_bytes

        return max(0, *map(lacking_bytes, SIZES))

    def _with(self, cut: Cut, first_state: int | None) -> Reserved:
        """Serve the requests; PyTorch's own pool has what private ones leave."""
        segments = {STATES + pool if pool else 0: sizes for pool, sizes in cut.segments.items()}
        (head, *rest), units = self._after_head, {*self._units.values()} if cut.pools else ()
        pools = {unit: STATES + pool for unit in units if (pool := cut.pools.get(unit, 0))}
        if pools:
            of_operation = {at: pools.get(unit, 0) for at, unit in self._units.items()}
            rest = [[each.in_pool(of_operation.get(each.operation, 0)) for each in asked] for asked in rest]
        states = list[Asked]()
        if first_state is not None:
            updated = [each.in_pool(STATES) for each in rest[0][first_state : self._end_of_states]]
            # What it frees was allocated before, unless its pool was.
            made = set[int]()
            for each in updated:
                if each.request.pool == STATES:
                    made.add(each.request.key)
                if each.request.key in made:
                    states.append(each)
            rest[0] = rest[0][:first_state] + updated + rest[0][self._end_of_states :]
        small_bytes = self._reserved_bytes(compress(chain(head, *rest), self._are_small), small=True)
        states_bytes = self._reserved_bytes(states, small=False)
        left_bytes = self._most_bytes - small_bytes - states_bytes - self._reserved_bytes(head, small=False)
        own_bytes = whole_pages(left_bytes - self._streams_bytes - sum(chain(*segments.values())), self.settings)
        # PyTorch would take a larger segment for less.
        own_bytes *= own_bytes >= OWN_SEGMENT_BYTES
        memory = ReservedMemory(
            own_bytes, segments, pools, small_bytes, states_bytes, self.capacity_bytes, self.settings
        )
        where, keys = head[-1].operation if head else rest[0][0].operation, count(self._first_key + len(head))
        others = ((pool, nbytes) for pool, sizes in segments.items() for nbytes in sizes)
        sizes = [(next(keys), pool, nbytes) for pool, nbytes in ((0, own_bytes), *others)]
        taking = (Asked(where, Request(key, nbytes, pool=pool)) for key, pool, nbytes in sizes)
        rest[0] = [*head, *taking, *(Asked(where, Request(key, None)) for key, *_ in sizes), *rest[0]]
        return Reserved(rest, self.serve([*chain.from_iterable(rest)]), memory, len(head) + 2 * len(sizes))

    def _reserved_bytes(self, asked: Iterable[Asked], *, small: bool) -> int:
        return reserved_bytes((each.request for each in asked), self.granule_bytes, self.settings, small=small)

    @property
    def _most_bytes(self) -> int:
        """Of all segments, those of other tensors among them."""
        return self.capacity_bytes + (0 if self.live is None else self.live.other_bytes)

    @cached_property
    def _streams_bytes(self) -> int:
        """Bytes of large segments for other streams, as those of collectives: PyTorch has pools for each stream."""
        asked = [*chain.from_iterable(self.iterations)]
        keys = {each.request.key for each in asked if each.request.stream}
        return self._reserved_bytes((each for each in asked if each.request.key in keys), small=False)

    @cached_property
    def _are_small(self) -> list[bool]:
        return are_small((each.request for each in chain(*self._after_head)), self.granule_bytes)

    @cached_property
    def _after_head(self) -> list[list[Asked]]:
        """The requests before the reservation, for given buffers and workspaces of cuBLAS, and those of iterations."""
        plan, first, early = self.plan, self.iterations[0], first_products(self.plan)
        begin = leading_operations(plan)
        head = takewhile(lambda each: each.operation < begin, first)
        given = [*takewhile(lambda each: plan.buffers[buffer_of(plan, each.request.key)].given, head)]
        rest = first[len(given) :]
        workspaces = [each for each in rest if each.request.key in early and each.request.nbytes is not None]
        stays = [each for each in rest if each not in workspaces]
        if self.live is None:
            return [[*workspaces, *given], stays, *map(list, self.iterations[1:])]
        made = states_of_update(self.plan.workload.step) if self.live.has_states else ()
        states = [each for each in stays if each.request.key in made and each.request.nbytes is not None]
        there = self._there(self.live, [*given, *states])
        known = {each.request.key for each in there}
        missing = [each for each in given if each.request.key not in known]
        stays = [each for each in stays if each not in states or each.request.key not in known]
        return [[*there, *missing, *workspaces], stays, *map(list, self.iterations[1:])]

    def _there(self, live: LiveSegments, known: Iterable[Asked]) -> list[Asked]:
        """Return the requests that lead to the segments of the process, some of them for known buffers."""
        asked = {each.request.key: each for each in known}
        sizes = {key: each.request.nbytes or 0 for key, each in asked.items()}
        found = live.requests(sizes, count(self._first_key), self.granule_bytes)
        return [Asked(asked[each.key].operation if each.key in asked else 0, each) for each in found]

    @cached_property
    def _first_key(self) -> int:
        """The first of the keys of no buffer and no iteration."""
        return max(len(self.plan.buffers), 1 + max(each.request.key for each in chain(*self.iterations)))

    @cached_property
    def _first_state(self) -> int | None:
        """The request of the first iteration for the first state that the update makes; None if it makes none."""
        states = states_of_update(self.plan.workload.step)
        asked = ((at, each.request) for at, each in enumerate(self._after_head[1]))
        return next((at for at, each in asked if each.nbytes is not None and each.key in states), None)

    @cached_property
    def _end_of_states(self) -> int:
        """The request of the first iteration behind those that use the states' pool: the last, or that of a state."""
        asked = self._after_head[1]
        if not makes_states_first(self.plan.workload):
            return len(asked)
        states = states_of_update(self.plan.workload.step)
        return 1 + max(at for at, (_, each) in enumerate(asked) if each.nbytes is not None and each.key in states)

    @cached_property
    def _blocks(self) -> list[tuple[int, Lifetime]]:
        """The large blocks of the last iteration, and the operation at which each is allocated."""
        return large_blocks(self._after_head[-1], self.granule_bytes)

    @cached_property
    def _units(self) -> Mapping[int, Unit]:
        return units_of(self.plan, self.boundaries)


_WHOLE: Final = Cut({}, {})


def _requests(found: Reserved) -> list[Request]:
    return [each.request for each in chain.from_iterable(found.iterations)]


def _lacking_bytes(found: Reserved) -> int:
    """Return by how much the largest free block is too small for the request that fails."""
    assert isinstance(found.answer, Overflow)
    return max(1, (_requests(found)[found.answer.position].nbytes or 0) - found.answer.largest_free_bytes)
