"""Offload of optimizer states and weight gradients while no kernel uses them: their bound, amounts and copies.

States are there between iterations: they come for the update and leave again, one by one. They come in the order in
which the update touches them, as far ahead as memory is free, after the last map is on its way back; where it is not,
at least those of the next kernel beside those of the running one, for which the compute stream waits until others have
left. A copy on the host keeps its memory while the states are on the GPU. Weight gradients leave when backward has made
them, come among the states and are given up behind their update.

Each byte that is on the host takes the link twice, so that neither none nor all need be best. The first made of the
gradients leave, which wait longest, and the first updated of the states, which are the first to have left again.
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
from vdnnsim.plans.schedule import Offload, Prefetch, ScheduleStep, Wait

STATES_SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
GRADIENTS_SHARES: Final = (0.0, 0.5, 1.0)
"""Of their bytes, so much may be on the host."""


def amounts(problem: Problem) -> list[frozenset[int]]:
    """Return what may be on the host of the states and weight gradients of a problem in which all are: none to all.

    A gradient that is updated as soon as it is made is among them all: it never leaves, and has no memory before.
    """
    made = [each for each in problem.residencies if not each.prefetched]
    leaving, gradients = [each for each in made if each.offloaded], frozenset(each.buffer for each in made)
    states = [each for each in problem.residencies if each.buffer not in gradients]
    at_once = gradients.difference(each.buffer for each in leaving)
    return list(
        dict.fromkeys(
            at_once | _first(states, states_share) | _first(leaving, gradients_share)
            for states_share, gradients_share in product(STATES_SHARES, GRADIENTS_SHARES)
        )
    )


def _first(stays: list[Residency], share: float) -> frozenset[int]:
    sums = list(accumulate(each.nbytes for each in stays))
    return frozenset(each.buffer for each, total in zip(stays, sums, strict=True) if total <= share * sums[-1])


def states_bound(
    problem: Problem, bound_s: float, others_s: float, links: Links, *, recompute: bool, may_stay: bool
) -> float:
    """Return seconds that no schedule is below that has states and weight gradients on the host as a problem says.

    All copies of a plan run on one stream, one after the other, at the best rates of the link; if both ways ran at
    once, this would be no bound.

    - While a kernel runs, what comes for a later one is on the GPU only as far as it has room beside what the kernel
      holds, all that may be away being away, and its least workspace. The rest has to come after it ends, and all that
      leaves behind it or a later kernel has to leave after that.
    - The first kernel for which something comes ends no sooner than by the bound of all kernels less those behind it by
      their fastest algorithms: for where these need nothing away, and no wait goes on, they could follow it without a
      stall. Elsewhere no sooner than by the fastest algorithms of the kernels up to it.
    - All that comes does, and all that leaves; and so does, out and in, what some kernel needs away by its least
      workspace, unless it may be recomputed.
    - Where each of them may as well stay, what does has room beside every kernel, and only the rest moves. But what
      lacks room beside some kernel, be it of them or of what waits, takes the link both ways.

    Args:
        problem: an iteration in which some are on the host.
        bound_s: what no schedule is below in which they come and leave in no time; of a micro-batch with the update.
        others_s: likewise, of the micro-batches before it.
        links: of the GPU.
        recompute: whether anything may be recomputed.
        may_stay: whether each of them may also be held.
    """
    coming = [each for each in problem.residencies if each.prefetched]
    if not coming:
        return others_s + bound_s
    first, kernels = coming[0].first, problem.kernels
    fastest_s = [each.options[0].seconds for each in kernels]
    capacity = problem.capacity_bytes
    now_s = others_s + sum(fastest_s[: first + 1])
    is_calm = all(each.away_bytes(each.options[0], capacity) <= 0 for each in kernels[first + 1 :])
    if is_calm and all(each.next <= first for each in problem.idle):
        now_s = max(now_s, others_s + bound_s - sum(fastest_s[first + 1 :]))
    to_come, to_leave = [0] * len(kernels), [0] * len(kernels)
    for each in problem.residencies:
        to_come[each.first] += each.nbytes * each.prefetched
        to_leave[each.last] += each.nbytes * each.offloaded
    # What a kernel has there anyway, and gradients that nobody has made yet, need no room beside it.
    own = sums_of(
        ((each.first * each.prefetched, each.last + 1, each.nbytes) for each in problem.residencies), len(kernels)
    )
    rooms = [max(0, capacity - each.held_bytes - each.options[-1].workspace_bytes) for each in kernels]
    staying = min(map(sum, zip(rooms, own, strict=True))) if may_stay else 0
    in_bytes, out_bytes = (max(0, sum(each) - staying) for each in (to_come, to_leave))
    moved = 0
    for kernel, room in zip(kernels, rooms, strict=True):
        parked = kernel.parked_bytes if may_stay else 0
        lacking = parked - room if recompute else parked + kernel.content_bytes - room
        maps = max(0, lacking - parked)
        moved = max(moved, min(parked, lacking) + maps * problem.workload.rounds)
    if may_stay:
        unchanged = sum(each.nbytes for each in coming) - sum(to_leave)
        in_bytes, out_bytes = max(in_bytes, moved), max(out_bytes, moved - max(0, unchanged))
    else:
        in_bytes, out_bytes = in_bytes + moved, out_bytes + moved
    seconds = max(others_s + bound_s, in_bytes / links.in_bytes_per_s + out_bytes / links.out_bytes_per_s)
    still_to_come, still_to_leave = sum(to_come[first:]), sum(to_leave[first:])
    for number in range(first, len(kernels)):
        still_to_come -= to_come[number]
        copies_s = max(0, still_to_come - rooms[number]) / links.in_bytes_per_s
        copies_s += max(0, still_to_leave - staying) / links.out_bytes_per_s
        seconds = max(seconds, now_s + copies_s)
        still_to_leave -= to_leave[number]
        now_s += sum(fastest_s[number + 1 : number + 2])
    return seconds


class Streaming:
    """The copies of states and gradients, asked for kernel by kernel in their order; without any it has no step.

    Args:
        timetable: what else leaves and comes back.
    """

    def __init__(self, timetable: Timetable) -> None:
        problem = timetable.movement.problem
        self._granule_bytes = problem.granule_bytes
        self._runs = [each.run for each in problem.kernels]
        self._coming = [each for each in problem.residencies if each.prefetched]
        # By gradient the kernel behind which it leaves.
        self._made = {each.buffer: each.last for each in problem.residencies if each.offloaded and not each.prefetched}
        self._begin = timetable.all_fetched
        if problem.workload.rounds > 1:
            # All that stands before the update is done in each round.
            self._begin = next((at for at, run in enumerate(self._runs) if run.phase is Phase.UPDATE), 0)
        # What is on the GPU beside what the timetable knows of: those that came ahead are subtracted at once.
        self._free = timetable.free_bytes
        self._leaving: deque[Residency] = deque()
        self._leaving_bytes = 0
        # The kernel for which the last of those that came did.
        self._reached = 0
        self._last = defaultdict[int, list[Residency]](list)
        for each in problem.residencies:
            self._last[each.last].append(each)

    def room_for(self, number: int) -> Iterator[ScheduleStep]:
        """Yield what stands before all that comes before a kernel: waits for what must have left by then."""
        yield from self._room(0, number)

    def before(self, number: int) -> Iterator[ScheduleStep]:
        """Yield what stands right before a kernel: what begins to come."""
        for stay in [each for each in self._coming if self._made.get(each.buffer, -1) < number]:
            nbytes = self._size(stay)
            if stay.first > number:
                if number < self._begin or min(self._free[number : stay.first]) < nbytes:
                    return
                is_next = self._reached <= number or self._reached == stay.first
                if not is_next and self._free[number] - self._leaving_bytes < nbytes:
                    return
                yield from self._room(nbytes, number)
                for at in range(number, stay.first):
                    self._free[at] -= nbytes
            while any(each.buffer == stay.buffer for each in self._leaving):
                yield self._left()
            run = self._runs[stay.first]
            keeps_copy = stay.buffer not in self._made
            yield Prefetch((stay.buffer,), run.layer, run.phase, stay.first == number, keeps_copy=keeps_copy)
            self._reached = stay.first
            self._coming.remove(stay)

    def behind(self, number: int) -> Iterator[ScheduleStep]:
        """Yield what stands right behind a kernel: what begins to leave, and behind the last, a wait for all of it."""
        run = self._runs[number]
        for stay in self._last[number]:
            if stay.offloaded:
                yield Offload((stay.buffer,), run.layer, run.phase)
                self._leaving.append(stay)
                self._leaving_bytes += self._size(stay)
        if number == len(self._runs) - 1 and self._leaving:
            yield Wait(tuple(each.buffer for each in self._leaving))

    def _room(self, nbytes: int, number: int) -> Iterator[ScheduleStep]:
        """Yield waits for those that leave until there is room or all have left."""
        while self._leaving and self._free[number] - self._leaving_bytes < nbytes:
            yield self._left()

    def _left(self) -> ScheduleStep:
        """Return a wait for the first of those that leave."""
        stay = self._leaving.popleft()
        self._leaving_bytes -= self._size(stay)
        return Wait((stay.buffer,))

    def _size(self, stay: Residency) -> int:
        return round_up(stay.nbytes, self._granule_bytes)
