"""A lower bound for schedules of an order of kernels that may offload and recompute any number of times.

Weights, their gradients and optimizer states are held throughout (`vdnnsim.planning.problem`).

Take any schedule, and of each idle interval (`vdnnsim.planning.buffer_uses.IdleInterval`) the bytes that are ever
absent from the GPU. They are prefetched, or the kernels that wrote them are recomputed: let r be 1 for an interval
where the latter is ever true of any of them, else 0. The program below has a solution that costs no more than the
schedule, as each of its constraints holds for any schedule:

- A kernel runs by one of its algorithms, after a stall. Copies overlap with both, at the best rates of the link.
- Of the bytes that are ever absent in intervals with r = 0, S are offloaded for the first time when a kernel starts,
  and Q are prefetched for the last time when it ends. Those absent while it runs are among S - Q, for memory is
  allocated and freed between kernels. Of intervals with r = 1 around it all may be absent. All other idle bytes fit
  beside what the kernel holds and its workspace.
- S is at most the bytes written so far, and what is prefetched after a kernel at most the idle bytes used after it,
  except contents with one idle interval and r = 1. Where a kernel rewrites its input, the former content may be
  offloaded, and prefetched to be rewritten again.
- With r = 1 the kernel that wrote the content is recomputed, by its fastest algorithm at best, in the stalls between
  the first kernel of the interval and its end; of several writers all. A run serves all contents that a kernel writes,
  so each pays by its size; but not two intervals, of which one has ended when the other begins. The inputs of the
  kernel are assumed to be live.

With every r = 0 this is the fluid model of `vdnnsim.planning.fluid_bound`, and for nested intervals the bound is not
above that one. Algorithms and r are integers in a mixed-integer program; at the deadline the solver's dual bound is
returned.
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
"""Fraction by which the solver's tolerances may raise a bound."""
LEAST_SHARE: Final = 1.5
"""Least time for the mixed-integer program, as a multiple of that of its linear relaxation."""
RESERVE: Final = 0.2
"""Of the time left, for the solver's overrun of its limit."""


class Relaxed(NamedTuple):
    """The solution of the program.

    Attributes:
        seconds: the bound; infinite where no schedule can run.
        again: by buffer that may be recomputed, the fraction that the relaxation recomputes.
    """

    seconds: float
    again: dict[int, float]


def recomputation_bound(problem: Problem, links: Links, host_bytes: int, deadline: Deadline) -> Relaxed:
    """Return the lower bound.

    The problem is of an order without recomputation.
    """
    # Slow to import.
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    unit_s = problem.fastest_s / max(1, len(problem.kernels)) or 1.0
    remaining_s = deadline.remaining_s
    program = _program_of(problem, links, host_bytes, unit_s)
    if program is None:
        return Relaxed(math.inf, {})
    # Passing the program to the solver takes about as long as building it.
    took_s = deadline.spent_since(remaining_s)
    rows, columns, factors = zip(*program.entries, strict=True)
    matrix = csr_array((factors, (rows, columns)), shape=(len(program.most), len(program.costs)))
    best, again = problem.fastest_s / unit_s, dict[int, float]()
    for whole in (False, True):
        # The second may prove nothing if stopped early, and checks the clock rarely.
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
        # An unfinished linear program proves nothing.
        proven = found.mip_dual_bound if whole else found.fun if found.status == 0 else None
        best = max(best, (proven or 0.0) * (1 - _TOLERANCE))
        if found.x is not None:
            again = {wait.buffer: float(found.x[column]) for wait, column in program.again.items()}
    return Relaxed(best * unit_s, again)


class _Content(NamedTuple):
    """The content of a buffer between two writes, if it is ever idle.

    Attributes:
        idle: its idle intervals in order.
        first: the kernel after which it may be offloaded; -1 if it is given.
        again_s: time to recompute it; infinite if it is given.
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
    # The kernels that write a content, the last first; -1 after those that rewrite a given one.
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
    """Columns from 0 to a bound, and rows between two limits."""

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
        """Let a total be monotonic, and rise by at most a rate times some terms from one position to the next."""
        step = [(totals[at], 1.0), *([(totals[at - 1], -1.0)] if at else [])]
        self.row([*step, *((column, -rate * factor) for column, factor in beside)])
        self.row((column, -factor) for column, factor in step)

    def sums(self, spans: Iterable[tuple[int, int, _Term]], count: int) -> list[int]:
        """Return for each position a column with the sum of the terms of its spans.

        A span is its first position, the one after its last, and a term.
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
    """Return the program in units of time and of the largest content; None where it is infeasible.

    Position k of a list is kernel k, or the end of the iteration.
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
        # In unlimited time everything is recomputed or, up to `host_bytes`, offloaded.
        staying_bytes = max(0, kernel.content_bytes - computable[number] - host_bytes)
        fitting = [each for each in kernel.options if each.workspace_bytes + staying_bytes <= room]
        if not fitting:
            return None
        chosen = [program.column(each.seconds / unit_s, 1.0, whole=len(fitting) > 1) for each in fitting]
        program.row([(column, 1.0) for column in chosen], 1.0, 1.0)
        run = [(column, each.seconds / unit_s) for column, each in zip(chosen, fitting, strict=True)]
        program.grow(left, 2 * number + 1, run, out_rate)
        program.grow(back, 2 * number + 1, run, in_rate)
        # Bytes that do not fit and are not recomputed are offloaded.
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
