"""A lower bound for schedules of an order of kernels that may offload and recompute any number of times.

Weights, their gradients and optimizer states are held throughout (`vdnnsim.planning.problem`).

Take any schedule. It is looked at while some kernels run, the checks: of every so many kernels the one that holds most
and the one with most idle bytes beside, and every kernel with several algorithms. The fullest of them is the turn. Each
constraint of the program holds for any schedule, and others are left out, so that its cost is a bound:

- A kernel runs by one of its algorithms, after a stall. Copies overlap with both, at the best rates of the link.
- Let r be 1 for an idle interval (`vdnnsim.planning.buffer_uses.IdleInterval`) in which any byte is ever absent from
  the GPU and recomputed, for one around the turn only after the turn; else 0. Of the bytes that are ever absent where
  r = 0, S are offloaded for the first time when a kernel starts, and Q are prefetched for the last time when it ends.
  Those absent while it runs are among S - Q, for memory is allocated and freed between kernels. Of intervals with r = 1
  around it all may be absent. All other idle bytes fit beside what the kernel holds and its workspace.
- S is at most the bytes written so far, and what is prefetched after a kernel at most the idle bytes used after it.
  Near the kernel shortest of memory, S when one kernel ends less Q when a later one starts is at most the bytes that
  are written before the one, used after the other, and not idle with r = 1 at last.
  Where a kernel rewrites its input, the former content may be offloaded, and prefetched to be rewritten again.
- With r = 1 the kernels that wrote the content are recomputed in stalls between the first kernel of the interval and
  its end, by their fastest algorithm at best. A run serves all contents that a kernel writes, but not two intervals of
  a content, nor both sides of the turn.
- What a kernel reads that is recomputed after the turn was on the GPU during the turn, or on the host, or is recomputed
  after the turn as well: activations that backward reads, and temporaries of forward, which it would otherwise free.
  Inputs of other recomputations are assumed to be live.

Where nothing may be recomputed this is the fluid model of `vdnnsim.planning.fluid_bound`. In small programs r and the
algorithms are integers, in large ones those that the linear program splits and that cost most; after some nodes the
solver's dual bound is returned. As blocks that repeat are split alike, that leaves next to nothing to gain.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise
from typing import Final, NamedTuple

from vdnnsim.planning.buffer_uses import IdleInterval, sums_of
from vdnnsim.planning.contents import Content, Name, contents_of, contents_read
from vdnnsim.planning.effort import Effort
from vdnnsim.planning.explanations import floor_bytes
from vdnnsim.planning.fluid_bound import Links
from vdnnsim.planning.linear_program import LinearProgram, Term
from vdnnsim.planning.problem import Problem
from vdnnsim.planning.restored import Restored

Span = tuple[int, int, Term]
_TOLERANCE: Final = 1e-6
"""Fraction by which the solver's tolerances may raise a bound."""
PARTS: Final = 250
"""Of the kernels in order, in each of which two are looked at."""
NEAR: Final = 8
"""Checks on each side of the one that is shortest of memory between which what can be away is counted."""
HEAVY: Final = 5e-4
"""Least cost of an integer in a large program, as a fraction of the kernels' time."""


class Relaxed(NamedTuple):
    """The solution of the program.

    Attributes:
        seconds: the bound; infinite where no schedule can run.
        again: by buffer that may be recomputed, the fraction that is.
    """

    seconds: float
    again: dict[int, float]


def recomputation_bound(
    problem: Problem, links: Links, host_bytes: int, effort: Effort, restored: Restored | None = None
) -> Relaxed:
    """Return the lower bound of an order without recomputation.

    With `restored` it is that of schedules that free what only forward reads, and hold what an order restores as long
    as that does.
    """
    unit_s = problem.fastest_s / max(1, len(problem.kernels)) or 1.0
    program = _Program(problem, links, host_bytes, unit_s, restored or Restored())
    if not program.is_feasible:
        return Relaxed(math.inf, {})
    if restored is not None:
        program.free_temporaries()
    found = program.lp.minimized(HEAVY * problem.fastest_s / unit_s, effort)
    again = {buffer: found.values[column] for (buffer, _), column in program.dropped.items()} if found.values else {}
    return Relaxed(max(problem.fastest_s, (program.rest + found.bound) * (1 - _TOLERANCE) * unit_s), again)


class _Program:
    """The program, in units of time and of the largest content.

    Attributes:
        is_feasible: whether every kernel fits by itself.
        rest: time of the kernels that are no checks.
        dropped: by content that is idle during the turn, the column of its r.
    """

    def __init__(self, problem: Problem, links: Links, host_bytes: int, unit_s: float, restored: Restored) -> None:
        self.lp = LinearProgram()
        self.is_feasible = True
        self.dropped: dict[Name, int] = {}
        self._problem, self._host_bytes, self._unit_s = problem, host_bytes, unit_s
        self._until = restored.until
        self._seconds = [each.options[0].seconds / unit_s for each in problem.kernels]
        self._unit_bytes = max((each.nbytes for each in problem.idle), default=0) or 1
        self._rates = [each * unit_s / self._unit_bytes for each in (links.out_bytes_per_s, links.in_bytes_per_s)]
        kernels = problem.kernels
        held = [each.held_bytes + each.options[-1].workspace_bytes for each in kernels]
        size = [nbytes + each.content_bytes for nbytes, each in zip(held, kernels, strict=True)]
        self._end = end = len(kernels)
        self._turn = max(range(end), key=size.__getitem__)
        parts = [range(end)[at : at + -(-end // PARTS)] for at in range(0, end, -(-end // PARTS))]
        checks = {self._turn, *(max(part, key=of.__getitem__) for part in parts for of in (held, size))}
        self._checks = sorted(checks | {at for at, each in enumerate(kernels) if len(each.options) > 1})
        self.rest = sum(self._seconds) - sum(self._seconds[each] for each in self._checks)
        # By kernel, and whether it is recomputed after the turn, the columns of that by content, the position from
        # which on it can be, and the one by which it is.
        self._again = defaultdict[tuple[int, bool], dict[Name, list[int]]](lambda: defaultdict(list))
        self._begins = defaultdict[tuple[int, bool], int](lambda: end)
        self._ends = defaultdict[tuple[int, bool], int](int)
        # By position what is absent, what is restored ahead and its temporaries; by content what is on GPU and host.
        self._absent, self._restored, self._beside = list[Span](), list[Span](), list[Span]()
        self._kept: dict[Name, tuple[int, int]] = {}
        self._temporaries: list[Name] = []
        # By kernel that may be recomputed after the turn, the column of that.
        self._runs: dict[int, int] = {}
        contents = contents_of(problem)
        for each in contents:
            if not each.is_given:
                self._enter(each)
        self._enter_inputs({each.name for each in contents for wait in each.idle if self._is_around(wait)})
        for kernel, first, stop, nbytes, is_kept in restored.beside:
            if kernel in self._runs:
                span = self._at(first), self._at(stop), (self._runs[kernel], self._share(nbytes))
                self._restored.append(span)
                self._beside += [] if is_kept else [span]
        self._enter_kernels(contents)

    def free_temporaries(self) -> None:
        """Let what only forward reads neither stay nor be offloaded."""
        for each in self._temporaries:
            for column in self._kept[each]:
                self.lp.bounds[column] = 0.0

    def _at(self, position: int) -> int:
        """Return the first check from a kernel on."""
        return bisect_left(self._checks, position)

    def _is_around(self, wait: IdleInterval) -> bool:
        return wait.last < self._turn < wait.next

    def _share(self, nbytes: int) -> float:
        return nbytes / self._unit_bytes

    def _enter(self, content: Content) -> None:
        """Enter the idle intervals of a content that can be recomputed, with the kernels that are recomputed for it."""
        for wait in content.idle:
            if self._at(wait.last + 1) == self._at(wait.next):
                continue
            turn, is_around = self._turn, self._is_around(wait)
            if not is_around:
                self._recomputed(content, wait.last + 1, wait.next, behind=wait.last >= turn)
                continue
            if self._at(wait.last + 1) < self._at(turn):
                self._recomputed(content, wait.last + 1, turn, behind=False)
            stop = min(wait.next, self._until.get(wait.buffer, wait.next))
            column = self.dropped[content.name] = self._recomputed(content, wait.last + 1, stop, behind=True)
            self._restored.append((self._at(stop), self._at(wait.next), (column, self._share(content.nbytes))))

    def _recomputed(self, content: Content, first: int, stop: int, *, behind: bool) -> int:
        column = self.lp.column(bound=1.0, weight=sum(self._seconds[each] for each in content.makers))
        self._absent.append((self._at(first), self._at(stop), (column, self._share(content.nbytes))))
        for each in content.makers:
            self._run_again(each, first + 1, stop, behind=behind)[content.name].append(column)
        return column

    def _run_again(self, kernel: int, first: int, stop: int, *, behind: bool) -> dict[Name, list[int]]:
        key = kernel, behind
        self._begins[key] = min(self._begins[key], max(first, self._turn + 1) if behind else first)
        self._ends[key] = max(self._ends[key], stop)
        return self._again[key]

    def _enter_inputs(self, idle: set[Name]) -> None:
        """Enter what recomputations after the turn read, from the last kernel to the first."""
        read, live = contents_read(self._problem, self._turn)
        for each in sorted(idle):
            again = [(self.dropped[each], -1.0)] if each in self.dropped else []
            self.lp.row([*self._here(each, idle), *again], -1.0)

        def run_of(kernel: int) -> int:
            if kernel not in self._runs:
                self._runs[kernel] = self.lp.column(bound=1.0, weight=self._seconds[kernel])
            return self._runs[kernel]

        for (_, made), column in self.dropped.items():
            self.lp.row([(column, 1.0), (run_of(made), -1.0)])
        for kernel in range(self._turn - 1, -1, -1):
            if kernel not in self._runs:
                continue
            stop = self._ends[kernel, True]
            self._run_again(kernel, self._turn + 1, stop, behind=True)[-1, kernel].append(self._runs[kernel])
            for each in read[kernel]:
                made = each[1]
                if each in live or (made < 0 and each not in idle):
                    continue
                again = [(run_of(made), -1.0)] if made >= 0 else []
                self.lp.row([(self._runs[kernel], 1.0), *self._here(each, idle), *again])
                if made >= 0:
                    self._ends[made, True] = max(self._ends[made, True], stop)

    def _here(self, content: Name, idle: set[Name]) -> list[Term]:
        """Return the parts of a content that are on the GPU during the turn, and on the host."""
        if content not in self._kept:
            self._kept[content] = self.lp.column(bound=1.0), self.lp.column(bound=1.0)
            if content not in idle:
                self._temporaries.append(content)
        return [(column, -1.0) for column in self._kept[content]]

    def _enter_kernels(self, contents: list[Content]) -> None:
        lp, problem, checks = self.lp, self._problem, self._checks
        count, turn = len(checks), self._at(self._turn)
        stall = [lp.column(1.0) for _ in range(count + 1)]
        computed = [lp.column() for _ in range(count + 1)]
        # Up to the start of a check, 2 k, and up to its end.
        left, back = ([lp.column() for _ in range(2 * count + 1)] for _ in range(2))
        absent, restored, beside = (lp.sums(each, count) for each in (self._absent, self._restored, self._beside))
        computable = sums_of(((w.last + 1, w.next, w.nbytes) for w in problem.idle if w.made >= 0), self._end)
        sizes = [each.nbytes for each in problem.workload.step.storages]
        kept = [(columns, self._share(sizes[buffer])) for (buffer, _), columns in self._kept.items()]
        on_gpu, on_host = ([(columns[at], share) for columns, share in kept] for at in (0, 1))
        for at, number in enumerate(checks):
            kernel = problem.kernels[number]
            room = problem.capacity_bytes - kernel.held_bytes
            # In unlimited time everything is recomputed or, up to the host's memory, offloaded.
            staying_bytes = max(0, kernel.content_bytes - computable[number] - self._host_bytes)
            fitting = [each for each in kernel.options if each.workspace_bytes + staying_bytes <= room]
            if not fitting:
                self.is_feasible = False
                return
            seconds = [each.seconds / self._unit_s for each in fitting]
            chosen = [lp.column(each, 1.0, weight=each if len(fitting) > 1 else None) for each in seconds]
            lp.equal([(column, 1.0) for column in chosen], 1.0)
            run = list(zip(chosen, seconds, strict=True))
            for totals, rate in zip((left, back), self._rates, strict=True):
                lp.grow(totals, 2 * at + 1, [(column, rate * factor) for column, factor in run])
            lacking = list(zip(chosen, (self._share(each.workspace_bytes) for each in fitting), strict=True))
            away = [(left[2 * at], -1.0), (back[2 * at + 1], 1.0)]
            lp.row(away)
            if at == turn:
                lp.row([*lacking, *on_gpu], self._share(room))
                lp.row([*away, *on_host])
                lp.row(on_host, self._share(self._host_bytes))
                continue
            lp.row([*lacking, (restored[at], 1.0)], self._share(room))
            # Bytes that do not fit and are not recomputed are offloaded.
            lacking += [(absent[at], -1.0), (beside[at], 1.0)]
            spare = self._share(room - kernel.content_bytes)
            lp.row([*lacking, *away], spare)
            if kernel.content_bytes > self._host_bytes:
                lp.row(lacking, spare + self._share(self._host_bytes))
        # In one column, as every check counts them.
        passed, temporaries = lp.column(), [(self._kept[each][1], sizes[each[0]]) for each in self._temporaries]
        lp.equal([(passed, -1.0), *((column, self._share(nbytes)) for column, nbytes in temporaries)])
        self._enter_crossings(contents, left, back, (passed, -1.0))
        due, begun = self._recomputations(count)
        ready = sums_of(((each.first + 1, self._end + 1, each.nbytes) for each in contents), self._end + 1)
        coming = sums_of(((0, each.idle[-1].next, each.nbytes) for each in contents), self._end + 1)
        for at, (before, position) in enumerate(pairwise([-1, *checks, self._end])):
            paused, between = [(stall[at], 1.0)], sum(self._seconds[before + 1 : position])
            for totals, rate in zip((left, back), self._rates, strict=True):
                lp.grow(totals, 2 * at, [(column, rate * factor) for column, factor in paused], rate * between)
            lp.grow(computed, at, paused)
            lp.row([(due[at], 1.0), (computed[at], -1.0)])
            lp.row([(computed[at], 1.0), (begun[at], -1.0)])
            lp.row([(left[min(2 * at + 1, 2 * count)], 1.0), (passed, -1.0)], self._share(ready[position]))
            lp.row([(left[-1], 1.0), (back[2 * at], -1.0), (passed, -1.0)], self._share(coming[position]))

    def _enter_crossings(self, contents: list[Content], left: list[int], back: list[int], passing: Term) -> None:
        """Limit what is offloaded by a check and prefetched after another, one of them the shortest of memory."""
        checks, kernels = self._checks, self._problem.kernels
        tight = max(range(self._at(self._turn), len(checks)), key=lambda each: floor_bytes(kernels[checks[each]]))
        for at in range(max(0, tight - NEAR), min(len(checks), tight + NEAR)):
            one, other = sorted((at, tight))
            over = [each for each in contents if each.first < checks[one] and checks[other] < each.idle[-1].next]
            again = [each for each in over if len(each.makers) == 1 and self._is_around(each.idle[-1])]
            terms = [(self.dropped[each.name], self._share(each.nbytes)) for each in again if each.name in self.dropped]
            moved = (left[2 * one + 1], 1.0), (back[2 * other], -1.0)
            self.lp.row([*terms, *moved, passing], self._share(sum(each.nbytes for each in over)))

    def _recomputations(self, count: int) -> tuple[list[int], list[int]]:
        """Return the time of recomputations that are due at each check, and of those that may have begun."""
        due, begun, last = list[Span](), list[Span](), count + 1
        for key, by_content in self._again.items():
            times = self.lp.column()
            for columns in by_content.values():
                self.lp.row([*((each, 1.0) for each in columns), (times, -1.0)])
            term = times, self._seconds[key[0]]
            due.append((self._at(self._ends[key]), last, term))
            begun.append((self._at(self._begins[key]), last, term))
        return self.lp.sums(due, last), self.lp.sums(begun, last)
