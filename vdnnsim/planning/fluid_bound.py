"""The fluid bound: a lower bound for all schedules of an order of kernels, whatever they offload.

Bytes that are on the host ("away") while a kernel runs are offloaded before it starts and prefetched after it ends.
Take any schedule, and of its kernels the turn, for which most bytes are away. Bytes away for a kernel before the turn
are offloaded by the start of that kernel; bytes away for one after it are prefetched after the end of that one; for the
turn both are true. Nothing else is counted: bytes are copied in any order, in fractions, at the best rate of the link
and without latency. Only bytes that the kernel just before has written need a stall to be offloaded. This relaxation is
solved exactly, by two searches from both ends of the iteration towards the turn:

- A label after some kernels is the time and the bytes offloaded. One with time t1 and bytes x1 dominates one with t2
  and x2 if t1 <= t2 and x1 + rate (t2 - t1) >= x2. Every algorithm of each kernel is tried, with the wait for offloads.
  After the turn the same holds in reversed time for prefetches.
- The bytes away for the turn are bisected. Where they are between `least` and `most`, no kernel needs more than `most`:
  that is a bound for all turns between. The lowest bound is split until no kernel needs more than the turn.

It holds for whole buffers and for parts, any choice of algorithms, any order of copies, stalls anywhere, copies that
serve several idle intervals, and branches, for one GPU's link at its best; latencies, contention, fragmentation and the
host only add time. Where all idle intervals contain the turn and each buffer has one, as the maps of a chain, it is the
optimum of the fluid model; else it may be lower, for it ignores offloads after the turn and prefetches before it.

It does not hold with recomputation (`vdnnsim.planning.recomputation_bound`), for another order of kernels, or where a
kernel writes over its input and the workload does not say so (Layrub lays dX over X).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, NamedTuple

from vdnnsim.planning.effort import FLUID, UNLIMITED, Effort
from vdnnsim.planning.problem import Kernel, Option, Problem

MOST_LABELS: Final = 200
"""Above so many for one kernel the two nearest are merged into one that dominates both."""
TOLERANCE: Final = 1e-4
"""Sufficient relative distance to the optimum."""


@dataclass(frozen=True, slots=True)
class Links:
    """Best rates of offloads and prefetches, bytes/s."""

    out_bytes_per_s: float
    in_bytes_per_s: float


class Need(NamedTuple):
    """An algorithm of a kernel, and the bytes that must be offloaded before it and prefetched after it.

    Attributes:
        before_s, behind_s: least stalls before and after it.
    """

    option: Option
    seconds: float
    sent_bytes: int
    returned_bytes: int
    before_s: float = 0.0
    behind_s: float = 0.0

    @property
    def away_bytes(self) -> int:
        """Return the bytes that must be away while it runs."""
        return max(self.sent_bytes, self.returned_bytes)

    def mirrored(self) -> "Need":
        return Need(self.option, self.seconds, self.returned_bytes, self.sent_bytes, self.behind_s, self.before_s)


class Stage(NamedTuple):
    """A kernel as the search sees it.

    Attributes:
        sendable_bytes: the most that can be offloaded before it for later kernels.
        returnable_bytes: the most that earlier kernels needed away and that can be prefetched only after it.
    """

    needs: tuple[Need, ...]
    sendable_bytes: int
    returnable_bytes: int


@dataclass(frozen=True, slots=True)
class Optimum:
    """The fluid optimum.

    Attributes:
        away_bytes: away for the turn.
        options: the algorithm of each kernel.
    """

    seconds: float
    away_bytes: int
    turn: int
    options: tuple[Option, ...]


class _Label(NamedTuple):
    seconds: float
    nbytes: float
    previous: "_Label | None"
    need: Need | None


_START: Final = _Label(0.0, 0.0, None, None)


def stages_of(problem: Problem, links: Links, host_bytes: int) -> list[Stage]:
    """Return the kernels of a problem with the bytes that must be away, at most `host_bytes`."""
    return [
        Stage(tuple(_needs_of(kernel, problem, links, host_bytes)), kernel.sendable_bytes, kernel.returnable_bytes)
        for kernel in problem.kernels
    ]


def _needs_of(kernel: Kernel, problem: Problem, links: Links, host_bytes: int) -> Iterator[Need]:
    most = min(kernel.content_bytes, host_bytes)
    for option in kernel.options:
        # Padding to granules is released and never copied.
        away = max(0, kernel.away_bytes(option, problem.capacity_bytes) - kernel.padding_bytes)
        if away <= most:
            before_s = max(0, away + kernel.fresh_bytes - kernel.content_bytes) / links.out_bytes_per_s
            yield Need(option, option.seconds, away, away, before_s)


def fluid_optimum(
    stages: Sequence[Stage], links: Links, near: float = TOLERANCE, effort: Effort = UNLIMITED, enough_s: float = inf
) -> Optimum:
    """Return the fastest fluid schedule of kernels each of which can run.

    The bound may be lower by the fraction `near`, at the end of the effort, and from `enough_s` seconds on.
    """
    amounts = sorted({each.away_bytes for stage in stages for each in stage.needs})
    least = max(min(each.away_bytes for each in stage.needs) for stage in stages)
    needs, tie = sum(len(stage.needs) for stage in stages), count()
    heap: list[tuple[float, int, int, int, _Solution]] = []
    best: _Solution | None = None

    def enter(first: int, last: int) -> None:
        nonlocal best
        effort.spend(FLUID * needs)
        solution = _solve(stages, links, amounts[first], amounts[last])
        heappush(heap, (solution.seconds, next(tie), first, last, solution))
        schedule = solution if solution.is_schedule else _turned(stages, links, solution)
        best = schedule if best is None else min(best, schedule, key=lambda each: each.seconds)

    enter(bisect_left(amounts, least), len(amounts) - 1)
    while True:
        seconds, _, first, last, found = heappop(heap)
        assert best is not None
        if found.is_schedule or best.seconds <= seconds * (1 + near) or seconds >= enough_s or effort.is_over:
            chosen = found if found.is_schedule else best
            return Optimum(
                seconds, chosen.needs[chosen.turn].away_bytes, chosen.turn, tuple(each.option for each in chosen.needs)
            )
        middle = (first + last) // 2
        enter(first, middle)
        enter(middle + 1, last)


def optimum_of(
    problem: Problem, links: Links, host_bytes: int, effort: Effort, near: float = TOLERANCE
) -> Optimum | None:
    """Return the fluid optimum of a problem; None if a kernel cannot run."""
    stages = stages_of(problem, links, host_bytes)
    return fluid_optimum(stages, links, near, effort) if all(each.needs for each in stages) else None


def _turned(stages: Sequence[Stage], links: Links, solution: "_Solution") -> "_Solution":
    """Return a solution around its kernel that needs most, which was not its turn."""
    only = [stage._replace(needs=(need,)) for stage, need in zip(stages, solution.needs, strict=True)]
    most = max(each.away_bytes for each in solution.needs)
    return _solve(only, links, most, most)


def fastest_around(stages: Sequence[Stage], links: Links, turn: int) -> tuple[Option, ...] | None:
    """Return the fastest algorithms around a given turn; None if a kernel cannot run."""
    if not all(each.needs for each in stages):
        return None
    solution = _solve(stages, links, 0, max(need.away_bytes for each in stages for need in each.needs), (turn,))
    return tuple(each.option for each in solution.needs)


@dataclass(frozen=True, slots=True)
class _Solution:
    seconds: float
    turn: int
    needs: tuple[Need, ...]

    @property
    def is_schedule(self) -> bool:
        """Whether no kernel needs more away than the turn."""
        return all(each.away_bytes <= self.needs[self.turn].away_bytes for each in self.needs)


def _solve(
    stages: Sequence[Stage], links: Links, least: int, most: int, turns: Sequence[int] | None = None
) -> _Solution:
    """Return the fastest where no kernel needs more than `most` and the turn at least `least`."""
    turns = range(len(stages)) if turns is None else turns
    allowed = [[each for each in stage.needs if each.away_bytes <= most] for stage in stages]
    until, since = max(turns) + 1, min(turns)
    sent = [(needs, each.sendable_bytes) for needs, each in zip(allowed[:until], stages[:until], strict=True)]
    returned = [
        ([each.mirrored() for each in needs], stage.returnable_bytes)
        for needs, stage in zip(allowed[since:], stages[since:], strict=True)
    ]
    ahead = _labels(sent, links.out_bytes_per_s)
    behind = _labels(returned[::-1], links.in_bytes_per_s)[::-1]
    best: tuple[float, int, _Label, _Label, Need] | None = None
    for turn in turns:
        for need in allowed[turn]:
            if need.away_bytes < least:
                continue
            mirrored = need.mirrored()
            for before in ahead[turn]:
                until_s = before.seconds + _wait_s(before, need, links.out_bytes_per_s) + need.seconds
                for after in behind[turn - since]:
                    seconds = until_s + _wait_s(after, mirrored, links.in_bytes_per_s) + after.seconds
                    if best is None or seconds < best[0]:
                        best = seconds, turn, before, after, need
    assert best is not None, "every kernel has an algorithm, and one of them needs at least as much"
    seconds, turn, before, after, need = best
    rest = [each.mirrored() for each in _needs(after)]
    return _Solution(seconds, turn, (*reversed(_needs(before)), need, *rest))


def _needs(label: _Label) -> list[Need]:
    """Return the choices of a label, the last first."""
    found = []
    while label.previous is not None:
        assert label.need is not None
        found.append(label.need)
        label = label.previous
    return found


def _labels(kernels: Sequence[tuple[Sequence[Need], int]], rate: float) -> list[list[_Label]]:
    """Return the labels before each kernel, by time."""
    labels = [_START]
    found = []
    for needs, movable in kernels:
        found.append(labels)
        if len(needs) == 1:
            need = needs[0]
            labels = [_after(each, need, movable, rate) for each in labels]
            continue
        grown: list[_Label] = []
        for need in needs:
            for each in labels:
                _insert(grown, _after(each, need, movable, rate), rate)
        labels = grown
        while len(labels) > MOST_LABELS:
            _merge(labels)
    return found


def _wait_s(label: _Label, need: Need, rate: float) -> float:
    """Return the stall of a kernel after a label."""
    return max(need.before_s, (need.sent_bytes - label.nbytes) / rate)


def _after(label: _Label, need: Need, movable: int, rate: float) -> _Label:
    seconds = _wait_s(label, need, rate) + need.seconds
    nbytes = min(movable, label.nbytes + rate * seconds)
    # In a stall after the kernel its own buffers can be copied as well.
    return _Label(label.seconds + seconds + need.behind_s, nbytes + rate * need.behind_s, label, need)


def _insert(labels: list[_Label], new: _Label, rate: float) -> None:
    """Insert a label by time, unless it is dominated; drop those that it dominates."""
    at = bisect_left(labels, (new.seconds, -new.nbytes), key=lambda each: (each.seconds, -each.nbytes))
    if at and labels[at - 1].nbytes + rate * (new.seconds - labels[at - 1].seconds) >= new.nbytes:
        return
    end = at
    while end < len(labels) and new.nbytes + rate * (labels[end].seconds - new.seconds) >= labels[end].nbytes:
        end += 1
    labels[at:end] = [new]


def _merge(labels: list[_Label]) -> None:
    """Replace the two labels nearest in time by one that dominates both."""
    at = min(range(1, len(labels)), key=lambda each: labels[each].seconds - labels[each - 1].seconds)
    labels[at - 1 : at + 1] = [labels[at - 1]._replace(nbytes=labels[at].nbytes)]
