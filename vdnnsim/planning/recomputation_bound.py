"""A lower bound for schedules of an order of kernels that may offload and recompute any number of times.

Weights, their gradients and states of the optimizer are held throughout (`vdnnsim.planning.problem`).

Take any schedule, and of each idle interval (`vdnnsim.planning.buffer_uses.IdleInterval`; "wait" below) the bytes that
are ever away. They come back by the link, or because the kernel that made them runs again: let r be 1 for a wait where
the latter is ever true of any of them, else 0. The program below then has a solution that costs no more than the
schedule takes, for each of its constraints is true of any schedule:

- A kernel runs by one of its algorithms, after a stall, which is what passes since the kernel before it. Copies go on
  beside both, at the best rates of the link.
- Of the bytes that are ever away in waits with r = 0, S have left for the first time when a kernel starts, and Q have
  come back for the last time when it ends. Those that are away while it runs are among S - Q, for memory is taken and
  given back between kernels. Of waits with r = 1 that it is in all may be away. What is left of all that waits has room
  beside what the kernel holds and its workspace.
- S is at most what has been made, and what comes back behind a kernel at most what waits to be touched behind it, but
  for contents that wait once, with r = 1. Where a kernel writes over what it reads, what leaves may be what was there
  before, and come back to be written over again.
- With r = 1 the kernel that made the content runs again, by its fastest algorithm at best, in the stalls between the
  first kernel of the wait and its end; where kernels wrote one over the other, all of them. A run serves all contents
  that a kernel makes, so each pays by its size; but not two waits, of which one has ended when the other begins. What
  the kernel reads is taken to be there.

With every r = 0 this is the fluid model of `vdnnsim.planning.fluid_bound`, and where waits are nested the bound is not
above the one there. Algorithms and r are chosen whole, which is a mixed-integer program; when time is up, what the
solver has proven so far is a bound, too.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from vdnnsim.planning.buffer_uses import IdleInterval, sums_of
from vdnnsim.planning.deadline import Deadline
from vdnnsim.planning.fluid_bound import Links
from vdnnsim.planning.problem import Problem
from vdnnsim.plans.buffers import IterationBuffers

_TOLERANCE: Final = 1e-6
"""By what fraction the solver's tolerances may raise a bound."""
LEAST_SHARE: Final = 1.5
"""So many times what the linear program took, the program in whole numbers must have, which solves it first."""
RESERVE: Final = 0.2
"""Of the time that is left, for what the solver takes beyond its limit."""


class Relaxed(NamedTuple):
    """What the program says.

    Attributes:
        seconds: that no schedule is below; infinite where none can run.
        again: by buffer that may be recomputed, the fraction of it for which that serves best, were it divisible.
    """

    seconds: float
    again: dict[int, float]


def recomputation_bound(problem: Problem, links: Links, host_bytes: int, deadline: Deadline) -> Relaxed:
    """Return seconds that no schedule is below.

    Args:
        problem: of an order in which nothing is recomputed yet.
        links: of the GPU.
        host_bytes: that may be away at a time.
        deadline: after which the solver ends with what it has proven.
    """
    # Late, for they take longer to import than most plans to make.
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    unit_s = problem.fastest_s / max(1, len(problem.kernels)) or 1.0
    remaining_s = deadline.remaining_s
    program = _program_of(problem, links, host_bytes, unit_s)
    if program is None:
        return Relaxed(math.inf, {})
    # To hand the program to the solver takes about as long as to write it.
    took_s = deadline.spent_since(remaining_s)
    rows, columns, factors = zip(*program.entries, strict=True)
    matrix = csr_array((factors, (rows, columns)), shape=(len(program.most), len(program.costs)))
    best, again = problem.fastest_s / unit_s, dict[int, float]()
    for whole in (False, True):
        # Stopped early, the second may have proven nothing, and it does not look at the clock all the time.
        if not deadline.allows(LEAST_SHARE * took_s):
            break
        left_s = deadline.remaining_s
        found = milp(
            program.costs,
            integrality=program.whole if whole else None,
            bounds=Bounds(0, program.bounds),
            constraints=LinearConstraint(matrix, program.least, program.most),
            options={"time_limit": left_s * (1 - RESERVE if whole else 1)},
        )
        took_s = deadline.spent_since(left_s)
        # What a linear program has come to when its time is up proves nothing.
        proven = found.mip_dual_bound if whole else found.fun if found.status == 0 else None
        best = max(best, (proven or 0.0) * (1 - _TOLERANCE))
        if found.x is not None:
            again = {wait.buffer: float(found.x[column]) for wait, column in program.again.items()}
    return Relaxed(best * unit_s, again)


class _Content(NamedTuple):
    """What a buffer holds between two writes, where it ever waits with it.

    Attributes:
        idle: its intervals in their order.
        first: the kernel behind which its bytes may leave at the earliest; -1 where an iteration begins with it.
        again_s: what it takes to compute all of it again; infinite where no kernels make it.
    """

    idle: tuple[IdleInterval, ...]
    first: int
    again_s: float

    @property
    def nbytes(self) -> int:
        return self.idle[0].nbytes

    @property
    def next(self) -> int:
        return self.idle[-1].next


def _contents(problem: Problem) -> list[_Content]:
    buffers = IterationBuffers(problem.workload)
    touched = [buffers.touched(each.run) for each in problem.kernels]
    written = defaultdict[int, list[int]](list)
    for position, (_, writes) in enumerate(touched):
        for each in dict.fromkeys(writes):
            written[each].append(position)
    waits = defaultdict[tuple[int, int], list[IdleInterval]](list)
    for wait in problem.idle:
        waits[wait.buffer, wait.made].append(wait)
    # The kernels that make a content, the last first; -1 behind those that write over what was given.
    chains: dict[tuple[int, int], list[int]] = {}
    made_bytes = defaultdict[int, int](int)
    for (buffer, made), found in waits.items():
        chain = chains[buffer, made] = []
        for position in (each for each in reversed(written[buffer]) if each <= made):
            chain.append(position)
            made_bytes[position] += found[0].nbytes
            if buffer not in touched[position][0]:
                break
        else:
            chain.append(-1)
    contents = []
    for content, found in waits.items():
        chain, nbytes = chains[content], found[0].nbytes
        shares = (problem.kernels[each].options[0].seconds * nbytes / (made_bytes[each] or 1) for each in chain)
        contents.append(_Content(tuple(found), chain[-1], math.inf if chain[-1] < 0 else sum(shares)))
    return contents


_Term = tuple[int, float]
"""A column and its factor."""


class _Program:
    """Columns from 0 to a bound, and rows between two limits, as they come."""

    def __init__(self) -> None:
        self.again: dict[IdleInterval, int] = {}
        self.costs: list[float] = []
        self.bounds: list[float] = []
        self.whole: list[bool] = []
        self.entries: list[tuple[int, int, float]] = []
        self.least: list[float] = []
        self.most: list[float] = []

    def column(self, cost: float = 0.0, bound: float = math.inf, *, whole: bool = False) -> int:
        self.costs.append(cost)
        self.bounds.append(bound)
        self.whole.append(whole)
        return len(self.costs) - 1

    def row(self, terms: Iterable[_Term], most: float = 0.0, least: float = -math.inf) -> None:
        self.entries += ((len(self.most), column, factor) for column, factor in terms)
        self.most.append(most)
        self.least.append(least)

    def grow(self, totals: Sequence[int], at: int, beside: Iterable[_Term], rate: float) -> None:
        """Let a total not fall from one position to the next, and rise by at most a rate times some terms."""
        step = [(totals[at], 1.0), *([(totals[at - 1], -1.0)] if at else [])]
        self.row([*step, *((column, -rate * factor) for column, factor in beside)])
        self.row((column, -factor) for column, factor in step)

    def sums(self, spans: Iterable[tuple[int, int, _Term]], count: int) -> list[int]:
        """Return for each of so many positions a column that is the sum of the terms of the spans that it is in.

        A span is its first position, the one behind its last, and a term.
        """
        changes: list[list[_Term]] = [[] for _ in range(count + 1)]
        for start, stop, (column, factor) in spans:
            changes[start].append((column, -factor))
            changes[min(stop, count)].append((column, factor))
        found = [self.column() for _ in range(count)]
        for at, each in enumerate(found):
            before = [(found[at - 1], -1.0)] if at else []
            self.row([(each, 1.0), *before, *changes[at]], 0.0, 0.0)
        return found


def _program_of(problem: Problem, links: Links, host_bytes: int, unit_s: float) -> _Program | None:
    """Return the program in units of time and of the largest content; None where it has no solution.

    Position k of a list is kernel k, and behind the last the end of the iteration.
    """
    program, end = _Program(), len(problem.kernels)
    unit_bytes = max((each.nbytes for each in problem.idle), default=0) or 1
    out_rate, in_rate = (each * unit_s / unit_bytes for each in (links.out_bytes_per_s, links.in_bytes_per_s))
    contents = _contents(problem)
    made_again = [each for each in contents if each.again_s < math.inf]
    again = {wait: program.column(bound=1.0, whole=True) for each in made_again for wait in each.idle}
    program.again |= again
    computable = sums_of(((each.last + 1, each.next, each.nbytes) for each in again), end)
    stall = [program.column(1.0) for _ in range(end + 1)]
    computed = [program.column() for _ in range(end + 1)]
    # Up to the start of a kernel, 2 k, and up to its end.
    left, back = ([program.column() for _ in range(2 * end + 1)] for _ in range(2))
    absent = program.sums(((w.last + 1, w.next, (column, w.nbytes / unit_bytes)) for w, column in again.items()), end)
    for number, kernel in enumerate(problem.kernels):
        room = problem.capacity_bytes - kernel.held_bytes
        # Without a limit of time all that can be recomputed is, and all else is on the host, as far as that goes.
        staying_bytes = max(0, kernel.content_bytes - computable[number] - host_bytes)
        fitting = [each for each in kernel.options if each.workspace_bytes + staying_bytes <= room]
        if not fitting:
            return None
        chosen = [program.column(each.seconds / unit_s, 1.0, whole=len(fitting) > 1) for each in fitting]
        program.row([(column, 1.0) for column in chosen], 1.0, 1.0)
        run = [(column, each.seconds / unit_s) for column, each in zip(chosen, fitting, strict=True)]
        program.grow(left, 2 * number + 1, run, out_rate)
        program.grow(back, 2 * number + 1, run, in_rate)
        # What lacks room and is not recomputed is away by the link.
        lacking = [(column, each.workspace_bytes / unit_bytes) for column, each in zip(chosen, fitting, strict=True)]
        lacking.append((absent[number], -1.0))
        spare = (room - kernel.content_bytes) / unit_bytes
        away = [(left[2 * number], -1.0), (back[2 * number + 1], 1.0)]
        program.row(away)
        program.row([*lacking, *away], spare)
        if kernel.content_bytes > host_bytes:
            program.row(lacking, spare + host_bytes / unit_bytes)
    took = [(wait, (again[wait], each.again_s / unit_s)) for each in made_again for wait in each.idle]
    due = program.sums(((wait.next, end + 1, term) for wait, term in took), end + 1)
    begun = program.sums(((wait.last + 2, end + 1, term) for wait, term in took), end + 1)
    alone = [each for each in made_again if len(each.idle) == 1]
    once = [(each, (again[each.idle[0]], each.nbytes / unit_bytes)) for each in alone]
    made = program.sums(((each.first + 1, end + 1, term) for each, term in once), end + 1)
    behind = program.sums(((0, each.next, term) for each, term in once), end + 1)
    ready = sums_of(((each.first + 1, end + 1, each.nbytes) for each in contents), end + 1)
    coming = sums_of(((0, each.next, each.nbytes) for each in contents), end + 1)
    for at in range(end + 1):
        paused = [(stall[at], 1.0)]
        program.grow(left, 2 * at, paused, out_rate)
        program.grow(back, 2 * at, paused, in_rate)
        program.grow(computed, at, paused, 1.0)
        program.row([(due[at], 1.0), (computed[at], -1.0)])
        program.row([(computed[at], 1.0), (begun[at], -1.0)])
        program.row([(left[min(2 * at + 1, 2 * end)], 1.0), (made[at], 1.0)], ready[at] / unit_bytes)
        program.row([(left[-1], 1.0), (back[2 * at], -1.0), (behind[at], 1.0)], coming[at] / unit_bytes)
    return program
