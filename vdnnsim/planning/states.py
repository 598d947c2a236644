"""Optimizer states that are on the host between iterations: they come for the update and leave again, one by one.

They come in the order in which the update touches them, as far ahead as memory is free, after the last map is on its
way back; where it is not, at least those of the next kernel beside those of the running one, for which the compute
stream waits until others have left. A copy on the host keeps its memory while the states are on the GPU. Weight
gradients stay there until the update: to take them out and in would put as many bytes again on the link that the states
wait for.
"""

from collections import defaultdict, deque
from collections.abc import Iterator

from vdnnsim.dnn.layers import Phase
from vdnnsim.memory.requests import round_up
from vdnnsim.planning.fluid import Links
from vdnnsim.planning.problem import Problem, Stay
from vdnnsim.planning.timetable import Timetable
from vdnnsim.plans.schedule import Fetch, Offload, Step, Wait


def states_bound(problem: Problem, bound_s: float, others_s: float, links: Links, *, recompute: bool) -> float:
    """Return seconds that no schedule is below that has each state on the host but for its update.

    All copies of a plan run on one stream, one after the other, at the best rates of the link; if both ways ran at
    once, this would be no bound.

    - While a kernel runs, states that no kernel has touched yet are on the GPU only as far as they have room beside
      what it holds, all that may be away being away, and its least workspace. The others have to come after it ends,
      and all that it or a later kernel changes has to leave after that.
    - The first kernel that touches states ends no sooner than by the bound of all kernels less those behind it by their
      fastest algorithms: for where these need nothing away, and no wait goes on, they could follow it without a stall.
      Elsewhere no sooner than by the fastest algorithms of the kernels up to it.
    - All states come, all that change leave, and so does, and comes back, what some kernel needs away by its least
      workspace, unless it may be computed again.

    Args:
        problem: an iteration with states.
        bound_s: what no schedule is below in which the states come and leave in no time; of a micro-batch with the
            update.
        others_s: likewise, of the micro-batches before it.
        links: of the GPU.
        recompute: whether anything may be computed again.
    """
    first, kernels = problem.stays[0].first, problem.kernels
    fastest_s = [each.options[0].seconds for each in kernels]
    capacity = problem.capacity_bytes
    now_s = others_s + sum(fastest_s[: first + 1])
    is_calm = all(each.away_bytes(each.options[0], capacity) <= 0 for each in kernels[first + 1 :])
    if is_calm and all(each.next <= first for each in problem.waits):
        now_s = max(now_s, others_s + bound_s - sum(fastest_s[first + 1 :]))
    to_come, to_leave = [0] * len(kernels), [0] * len(kernels)
    for each in problem.stays:
        to_come[each.first] += each.nbytes
        to_leave[each.last] += each.nbytes * each.changes
    coming, leaving = sum(to_come), sum(to_leave)
    most_away = max(each.away_bytes(each.options[-1], capacity) - each.padding_bytes for each in kernels)
    moved = 0 if recompute else max(0, most_away) * problem.workload.rounds
    copies_s = (coming + moved) / links.in_bytes_per_s + (leaving + moved) / links.out_bytes_per_s
    seconds = max(others_s + bound_s, copies_s)
    for number in range(first, len(kernels)):
        coming -= to_come[number]
        room = max(0, capacity - kernels[number].held_bytes - kernels[number].options[-1].workspace_bytes)
        copies_s = max(0, coming - room) / links.in_bytes_per_s + leaving / links.out_bytes_per_s
        seconds = max(seconds, now_s + copies_s)
        leaving -= to_leave[number]
        now_s += sum(fastest_s[number + 1 : number + 2])
    return seconds


class Streaming:
    """The copies of states, asked for kernel by kernel in their order; where there are none, it never has a step.

    Args:
        timetable: what else leaves and comes back.
    """

    def __init__(self, timetable: Timetable) -> None:
        problem = timetable.movement.problem
        self._granule_bytes = problem.granule_bytes
        self._runs = [each.run for each in problem.kernels]
        self._coming = deque(problem.stays)
        self._begin = timetable.all_fetched
        if problem.workload.rounds > 1:
            # All that stands before the update is done in each round.
            self._begin = next((at for at, run in enumerate(self._runs) if run.phase is Phase.UPDATE), 0)
        # What is on the GPU beside what the timetable knows of: those that came ahead are subtracted at once.
        self._free = timetable.free_bytes
        self._leaving: deque[Stay] = deque()
        self._leaving_bytes = 0
        # The kernel for which the last of those that came did.
        self._reached = 0
        self._last = defaultdict[int, list[Stay]](list)
        for each in problem.stays:
            self._last[each.last].append(each)

    def before(self, number: int) -> Iterator[Step]:
        """Yield what stands right before a kernel: what must have left by then, and what begins to come."""
        yield from self._room_for(0, number)
        while self._coming:
            stay, nbytes = self._coming[0], self._size(self._coming[0])
            if stay.first > number:
                if number < self._begin or min(self._free[number : stay.first]) < nbytes:
                    return
                is_next = self._reached <= number or self._reached == stay.first
                if not is_next and self._free[number] - self._leaving_bytes < nbytes:
                    return
                yield from self._room_for(nbytes, number)
                for at in range(number, stay.first):
                    self._free[at] -= nbytes
            run = self._runs[stay.first]
            yield Fetch((stay.buffer,), run.layer, run.phase, stay.first == number, keeps_copy=True)
            self._reached = stay.first
            self._coming.popleft()

    def behind(self, number: int) -> Iterator[Step]:
        """Yield what stands right behind a kernel: what begins to leave, and behind the last, a wait for all of it."""
        run = self._runs[number]
        for stay in self._last[number]:
            if stay.changes:
                yield Offload((stay.buffer,), run.layer, run.phase)
                self._leaving.append(stay)
                self._leaving_bytes += self._size(stay)
        if number == len(self._runs) - 1 and self._leaving:
            yield Wait(tuple(each.buffer for each in self._leaving))

    def _room_for(self, nbytes: int, number: int) -> Iterator[Step]:
        """Yield waits for those that leave, the first that began to, until there is room or all have left."""
        while self._leaving and self._free[number] - self._leaving_bytes < nbytes:
            stay = self._leaving.popleft()
            self._leaving_bytes -= self._size(stay)
            yield Wait((stay.buffer,))

    def _size(self, stay: Stay) -> int:
        return round_up(stay.nbytes, self._granule_bytes)
