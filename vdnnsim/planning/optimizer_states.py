"""Offload of optimizer states and weight gradients while no kernel uses them: their bound, amounts and copies.

States are on the host between iterations, prefetched for the update and offloaded after it, one by one: in the order of
the update, as far ahead as memory is free, after the last map has been prefetched; else at least those of the next
kernel beside the running one, for which the compute stream waits until others are offloaded. The host keeps a copy of
states on the GPU. Weight gradients are offloaded when backward has written them, prefetched among the states and freed
after their update.

Each byte on the host takes the link twice, so that some amount between none and all may be best. Chosen first are the
gradients written first, which are idle longest, and the states updated first, which are offloaded first.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import accumulate, product
from typing import Final

from vdnnsim.dnn.layers import Phase
from vdnnsim.memory.requests import round_up
from vdnnsim.planning.buffer_uses import Residency, sums_of
from vdnnsim.planning.fluid_bound import Links
from vdnnsim.planning.problem import Problem
from vdnnsim.planning.timetable import Timetable
from vdnnsim.plans.buffers import states_of_update
from vdnnsim.plans.schedule import Offload, Prefetch, ScheduleStep, Wait

STATES_SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
GRADIENTS_SHARES: Final = (0.0, 0.5, 1.0)
"""Shares of their bytes on the host."""


def amounts(problem: Problem) -> list[frozenset[int]]:
    """Return sets of the states and weight gradients of a problem that may be on the host, from none to all.

    A gradient that is updated right after it is written is in every set: it is never copied, and not live before.
    """
    made = [each for each in problem.residencies if not each.prefetched]
    offloaded, gradients = [each for each in made if each.offloaded], frozenset(each.buffer for each in made)
    states = [each for each in problem.residencies if each.buffer not in gradients]
    at_once = gradients.difference(each.buffer for each in offloaded)
    return list(
        dict.fromkeys(
            at_once | _first(states, states_share) | _first(offloaded, gradients_share)
            for states_share, gradients_share in product(STATES_SHARES, GRADIENTS_SHARES)
        )
    )


def least_states(problem: Problem) -> frozenset[int]:
    """Return the states of a problem that are in each of its amounts which has any."""
    states = states_of_update(problem.workload.step)
    return frozenset.intersection(*(each & states for each in amounts(problem) if each & states))


def _first(stays: list[Residency], share: float) -> frozenset[int]:
    sums = list(accumulate(each.nbytes for each in stays))
    return frozenset(each.buffer for each, total in zip(stays, sums, strict=True) if total <= share * sums[-1])


def states_bound(
    problem: Problem, bound_s: float, others_s: float, links: Links, *, recompute: bool, may_stay: bool
) -> float:
    """Return a lower bound of schedules with the states and weight gradients of a problem on the host.

    All copies of a plan run on one stream, one after the other, at the best rates of the link; with both directions at
    once this would be no bound.

    - While a kernel runs, buffers prefetched for later ones fit only beside what the kernel holds and its least
      workspace. The rest is prefetched after it ends, and all offloads of its and later kernels follow.
    - The first kernel with a prefetch ends no sooner than the bound of all kernels less those after it by their fastest
      algorithms, if these need nothing away and no idle interval extends over them, so that they could follow without a
      stall. Else no sooner than the fastest algorithms of the kernels up to it.
    - All prefetches and offloads take the link, and so do, out and in, the bytes that some kernel needs away with its
      least workspace, unless they may be recomputed.
    - If each may also be held, only bytes that do not fit beside every kernel are copied; the bytes that some kernel
      lacks, of these or of idle buffers, take the link both ways.

    `bound_s` is the bound without their copies of a micro-batch with the update, `others_s` that of the micro-batches
    before it. With `recompute` anything may be recomputed; each of them `may_stay` if it may also be held.
    """
    prefetched = [each for each in problem.residencies if each.prefetched]
    if not prefetched:
        return others_s + bound_s
    first, kernels = prefetched[0].first, problem.kernels
    fastest_s = [each.options[0].seconds for each in kernels]
    capacity = problem.capacity_bytes
    now_s = others_s + sum(fastest_s[: first + 1])
    is_calm = all(each.away_bytes(each.options[0], capacity) <= 0 for each in kernels[first + 1 :])
    if is_calm and all(each.next <= first for each in problem.idle):
        now_s = max(now_s, others_s + bound_s - sum(fastest_s[first + 1 :]))
    to_prefetch, to_offload = [0] * len(kernels), [0] * len(kernels)
    for each in problem.residencies:
        to_prefetch[each.first] += each.nbytes * each.prefetched
        to_offload[each.last] += each.nbytes * each.offloaded
    # Operands of a kernel, and gradients not yet written, need no memory beside it.
    own = sums_of(
        ((each.first * each.prefetched, each.last + 1, each.nbytes) for each in problem.residencies), len(kernels)
    )
    rooms = [max(0, capacity - each.held_bytes - each.options[-1].workspace_bytes) for each in kernels]
    staying = min(map(sum, zip(rooms, own, strict=True))) if may_stay else 0
    in_bytes, out_bytes = (max(0, sum(each) - staying) for each in (to_prefetch, to_offload))
    moved = 0
    for kernel, room in zip(kernels, rooms, strict=True):
        parked = kernel.parked_bytes if may_stay else 0
        lacking = parked - room if recompute else parked + kernel.content_bytes - room
        maps = max(0, lacking - parked)
        moved = max(moved, min(parked, lacking) + maps * problem.workload.rounds)
    if may_stay:
        unchanged = sum(each.nbytes for each in prefetched) - sum(to_offload)
        in_bytes, out_bytes = max(in_bytes, moved), max(out_bytes, moved - max(0, unchanged))
    else:
        in_bytes, out_bytes = in_bytes + moved, out_bytes + moved
    seconds = max(others_s + bound_s, in_bytes / links.in_bytes_per_s + out_bytes / links.out_bytes_per_s)
    left_to_prefetch, left_to_offload = sum(to_prefetch[first:]), sum(to_offload[first:])
    for number in range(first, len(kernels)):
        left_to_prefetch -= to_prefetch[number]
        copies_s = max(0, left_to_prefetch - rooms[number]) / links.in_bytes_per_s
        copies_s += max(0, left_to_offload - staying) / links.out_bytes_per_s
        seconds = max(seconds, now_s + copies_s)
        left_to_offload -= to_offload[number]
        now_s += sum(fastest_s[number + 1 : number + 2])
    return seconds


class Streaming:
    """The copies of states and gradients, kernel by kernel; `timetable` is that of all other copies."""

    def __init__(self, timetable: Timetable) -> None:
        problem = timetable.movement.problem
        self._granule_bytes = problem.granule_bytes
        self._runs = [each.run for each in problem.kernels]
        self._to_prefetch = [each for each in problem.residencies if each.prefetched]
        # By gradient the kernel after which it is offloaded.
        self._made = {each.buffer: each.last for each in problem.residencies if each.offloaded and not each.prefetched}
        self._begin = timetable.all_fetched
        if problem.workload.rounds > 1:
            # Steps before the update are repeated for each micro-batch.
            self._begin = next((at for at, run in enumerate(self._runs) if run.phase is Phase.UPDATE), 0)
        # Free memory by kernel, less the buffers that were prefetched ahead.
        self._free = timetable.free_bytes
        self._offloading: deque[Residency] = deque()
        self._offloading_bytes = 0
        # The kernel of the last prefetch.
        self._reached = 0
        self._last = defaultdict[int, list[Residency]](list)
        for each in problem.residencies:
            self._last[each.last].append(each)

    def room_for(self, number: int) -> Iterator[ScheduleStep]:
        """Yield waits for offloads whose memory a kernel needs."""
        yield from self._room(0, number)

    def before(self, number: int) -> Iterator[ScheduleStep]:
        """Yield the prefetches right before a kernel, and the waits for their memory."""
        for stay in [each for each in self._to_prefetch if self._made.get(each.buffer, -1) < number]:
            nbytes = self._size(stay)
            if stay.first > number:
                if number < self._begin or min(self._free[number : stay.first]) < nbytes:
                    return
                is_next = self._reached <= number or self._reached == stay.first
                if not is_next and self._free[number] - self._offloading_bytes < nbytes:
                    return
                yield from self._room(nbytes, number)
                for at in range(number, stay.first):
                    self._free[at] -= nbytes
            while any(each.buffer == stay.buffer for each in self._offloading):
                yield self._left()
            run = self._runs[stay.first]
            keeps_copy = stay.buffer not in self._made
            yield Prefetch((stay.buffer,), run.layer, run.phase, stay.first == number, keeps_copy=keeps_copy)
            self._reached = stay.first
            self._to_prefetch.remove(stay)

    def behind(self, number: int) -> Iterator[ScheduleStep]:
        """Yield the offloads right after a kernel, and after the last kernel a wait for all."""
        run = self._runs[number]
        for stay in self._last[number]:
            if stay.offloaded:
                yield Offload((stay.buffer,), run.layer, run.phase)
                self._offloading.append(stay)
                self._offloading_bytes += self._size(stay)
        if number == len(self._runs) - 1 and self._offloading:
            yield Wait(tuple(each.buffer for each in self._offloading))

    def _room(self, nbytes: int, number: int) -> Iterator[ScheduleStep]:
        """Yield waits for offloads until enough memory is free or none is left."""
        while self._offloading and self._free[number] - self._offloading_bytes < nbytes:
            yield self._left()

    def _left(self) -> ScheduleStep:
        stay = self._offloading.popleft()
        self._offloading_bytes -= self._size(stay)
        return Wait((stay.buffer,))

    def _size(self, stay: Residency) -> int:
        return round_up(stay.nbytes, self._granule_bytes)
