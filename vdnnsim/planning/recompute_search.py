"""The recomputation search: which buffers to drop and recompute, so that the iteration with its copies is shortest.

Each set of dropped buffers makes an order of kernels, and the fluid optimum of that says what it is worth; where they
have addresses, the plan that is made of it at once, if it finds room. Sets are tried in rounds. First what users of
PyTorch checkpoint: all but the last of equal segments, of which what passes from one to the next stays; what is freed
segment by segment leaves few gaps. Then those that the linear program of the bound recomputes, rounded; of buffers
that are alike, as the same map of every block is, as many as there, but evenly spread over forward, for in a row they
would be restored at once; and those that cost least time for their bytes, in growing number. Then, from the best of
these, or while none fits from the one that lacks least, the shares that are dropped of buffers that are alike are
raised and lowered one after the other, evenly spread, as long as that helps. Then of those made one after the other one
in so many is kept and the rest dropped; at last ranges of buffers are dropped or kept instead, large ranges first, as
long as there is time.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import inf
from typing import Final, NamedTuple

from vdnnsim.planning.deadline import Deadline
from vdnnsim.planning.fluid_bound import Links, Optimum, fluid_optimum, stages_of
from vdnnsim.planning.problem import Kernel, Problem
from vdnnsim.planning.recomputation import Recomputation
from vdnnsim.plans.schedule import Run

SHARES: Final = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Of the bytes that could be dropped, in the first two rounds."""
INTERVALS: Final = (2, 3, 4, 6, 8, 12, 16, 24)
"""One in so many is kept in the second round."""
SEGMENTS: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Into so many forward is cut, of which all but the last run again."""
THRESHOLDS: Final = (0.99, 0.5, 0.2, 0.01)
"""From which fraction on what the relaxed problem recomputes in part is dropped."""
STEPS: Final = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
"""By which shares of buffers that are alike are changed, from coarse to fine."""
MARGIN: Final = 5e-4
"""A fraction of an iteration; what gains less is no gain."""


@dataclass(frozen=True, slots=True)
class Order:
    """The kernels of an iteration in which some buffers are dropped and restored.

    Attributes:
        problem: in which only what waits over one kernel may be away.
        optimum: of what leaves and comes back beside.
        states_s: how much longer it takes for states and weight gradients that are on the host.
        lost_s: how much longer than its optimum its plan takes, where addresses count.
    """

    dropped: frozenset[int]
    problem: Problem
    optimum: Optimum
    states_s: float
    lost_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Return what it is worth."""
        return self.optimum.seconds + self.states_s + self.lost_s


class Verdict(NamedTuple):
    """What the addresses of a plan make of an order.

    Attributes:
        lost_s: how much longer than its optimum its plan takes.
        lacking_bytes: that the first request lacks which finds no room; 0 where all do.
    """

    lost_s: float = 0.0
    lacking_bytes: int = 0


@dataclass
class DropSearch:
    """A search for the best order.

    Attributes:
        recomputation: of the iteration.
        problem_of: makes the problem of an order of kernels.
        links: as of the fluid bound.
        host_bytes: as of the fluid bound.
        deadline: when it ends.
        goal_s: what no iteration is faster than; who is that near it searches no more.
        found: receives the seconds of every better order.
        begin: the order that drops nothing; None where it does not fit.
        states_s: how much longer than its optimum an order takes for what is on the host.
        look_s: what the longest look at a set takes, as far as is known.
        judged: looks at the plan of an order, where not its bytes alone count, until the search ends.
    """

    recomputation: Recomputation
    problem_of: Callable[[list[Run]], Problem]
    links: Links
    host_bytes: int
    deadline: Deadline
    goal_s: float
    found: Callable[[float], None] | None
    begin: Order | None
    states_s: Callable[[Problem, float], float] = lambda _problem, _seconds: 0.0
    look_s: float = 0.0
    judged: Callable[[Order, Deadline], Verdict] = lambda _order, _deadline: Verdict()

    def __post_init__(self) -> None:
        """Begin with the order that drops nothing."""
        self._found = [self.begin] if self.begin else []
        self._tried = {each.dropped for each in self._found}
        # From where to go on: the best order, or while none fits the set that lacks least, and how much that is.
        self._base: frozenset[int] = frozenset()
        self._lacking = (0.0, 0.0) if self.begin else (inf, inf)
        # Whether the search was ended by time.
        self._is_cut = False
        # Those whose bytes fit and whose addresses do not, the best last.
        self.displaced = list[Order]()

    def orders(self, again: Mapping[int, float]) -> list[Order]:
        """Return the orders found, each better than those before it, from `begin` on; none where none fits.

        A user who interrupts the search gets those found so far.

        Args:
            again: by buffer the fraction of it that a relaxed problem recomputes (`recomputation_bound`).
        """
        with suppress(KeyboardInterrupt):
            if self._found and self._is_over():
                return self._found
            if self._all_tried(self._proposals(again)) and self._adjust() and self._all_tried(self._intervals()):
                self._refine()
        return self._found

    def begin_with_segments(self) -> None:
        """Try what users of PyTorch do: to compute all again but the last of equal segments."""
        self._all_tried(((), *map(self.recomputation.segmented, SEGMENTS)))

    @property
    def is_complete(self) -> bool:
        """Whether the search came to its end before its time."""
        return not self._is_cut

    def _proposals(self, again: Mapping[int, float]) -> Iterator[Iterable[int]]:
        yield ()
        order = self.recomputation.droppable
        for least in THRESHOLDS:
            yield (each for each in order if again.get(each, 0.0) >= least)
        yield _spread_over(
            self._alike, [sum(again.get(each, 0.0) for each in group) / len(group) for group in self._alike]
        )
        cheapest = sorted(order, key=self.recomputation.price)
        for share in SHARES:
            yield self._share(cheapest, share)

    def _intervals(self) -> Iterator[Iterable[int]]:
        order = self.recomputation.droppable
        for share in SHARES[::-1]:
            for interval in INTERVALS:
                for begin in (order, order[::-1]):
                    part = self._share(begin, share)
                    yield (each for at, each in enumerate(part, start=1) if at % interval)

    def _all_tried(self, proposals: Iterable[Iterable[int]]) -> bool:
        """Try sets as long as the search goes on, and return whether it does."""
        for dropped in proposals:
            if self._is_over() and (self._tried or self.look_s or self.deadline.with_grace.is_over):
                return False
            self._try(dropped)
        return not self._is_over()

    @cached_property
    def _alike(self) -> list[list[int]]:
        """Buffers of one size and price, those that have the most bytes first."""
        alike = defaultdict[tuple[int, float], list[int]](list)
        for each in self.recomputation.droppable:
            alike[self.recomputation.nbytes(each), self.recomputation.price(each)].append(each)
        return sorted(alike.values(), key=lambda each: -len(each) * self.recomputation.nbytes(each[0]))

    def _adjust(self) -> bool:
        """Raise and lower what the best set drops of buffers that are alike; return whether the search goes on."""
        groups = self._alike
        shares = [len(self._base.intersection(group)) / len(group) for group in groups]
        self._try(_spread_over(groups, shares))
        for step in STEPS:
            helped = True
            while helped:
                helped = False
                for number, change in product(range(len(groups)), (step, -step)):
                    share = min(1.0, max(0.0, shares[number] + change))
                    changed = [*shares[:number], share, *shares[number + 1 :]]
                    if self._is_over():
                        return False
                    if self._try(_spread_over(groups, changed)):
                        shares, helped = changed, True
        return True

    def _share(self, order: Sequence[int], share: float) -> list[int]:
        """Return the first of an order, as far as a share of all bytes goes."""
        left = share * sum(self.recomputation.nbytes(each) for each in order)
        part = []
        for each in order:
            left -= self.recomputation.nbytes(each)
            if left < 0 and share < 1:
                break
            part.append(each)
        return part

    def _try(self, dropped: Iterable[int]) -> bool:
        """Try a set, and return whether it is the best so far."""
        buffers = frozenset(dropped)
        if buffers in self._tried:
            return False
        self._tried.add(buffers)
        remaining_s = self.deadline.remaining_s
        is_best = self._is_best(buffers)
        self.look_s = max(self.look_s, self.deadline.spent_since(remaining_s))
        return is_best

    def _is_best(self, buffers: frozenset[int]) -> bool:
        whole = self.problem_of(self.recomputation.order(buffers))
        problem = whole.around(whole.fullest)
        best_s = self._found[-1].seconds if self._found else inf
        if problem.fastest_s >= best_s * (1 - MARGIN):
            return False
        stages = stages_of(problem, self.links, self.host_bytes)
        lacking = sum(
            _lacking_bytes(kernel, problem.capacity_bytes, self.host_bytes)
            for kernel, stage in zip(problem.kernels, stages, strict=True)
            if not stage.needs
        )
        if lacking:
            return self._is_nearer(buffers, (1, lacking))
        optimum = fluid_optimum(stages, self.links, MARGIN, self.deadline, best_s * (1 - MARGIN))
        found = Order(buffers, problem, optimum, self.states_s(whole, optimum.seconds))
        if found.seconds >= best_s * (1 - MARGIN):
            return False
        lost_s, lacking = self.judged(found, self.deadline)
        if lacking:
            self.displaced.append(found)
            return self._is_nearer(buffers, (0, lacking))
        found = replace(found, lost_s=lost_s)
        if found.seconds >= best_s * (1 - MARGIN):
            return False
        self._base, self._lacking = buffers, (0, 0)
        self._found.append(found)
        if self.found is not None:
            self.found(found.seconds)
        return True

    def _is_nearer(self, buffers: frozenset[int], lacking: tuple[int, int]) -> bool:
        """Go on from a set if it lacks less than any before it, while none fits."""
        if lacking >= self._lacking:
            return False
        self._base, self._lacking = buffers, lacking
        return True

    def _refine(self) -> None:
        """Drop or keep ranges of buffers the other way, halving their length whenever none helps."""
        order = self.recomputation.droppable
        length = max(1, len(order) // 4)
        while True:
            helped = False
            for start in range(0, len(order), max(1, length // 2)):
                part, now = set(order[start : start + length]), self._base
                for changed in (now - part, now | part, now ^ part):
                    helped |= self._try(changed)
                    if self._is_over():
                        return
            if not helped:
                if length == 1:
                    return
                length = max(1, length // 2)

    def _is_over(self) -> bool:
        if self._found and self._found[-1].seconds <= self.goal_s * (1 + MARGIN):
            return True
        self._is_cut = not self.deadline.allows(self.look_s)
        return self._is_cut


def _spread_over(groups: Iterable[Sequence[int]], shares: Iterable[float]) -> Iterator[int]:
    """Yield a share of each group, evenly spread over it."""
    for group, share in zip(groups, shares, strict=True):
        yield from (each for at, each in enumerate(group) if int((at + 1) * share + 0.5) > int(at * share + 0.5))


def _lacking_bytes(kernel: Kernel, capacity_bytes: int, host_bytes: int) -> int:
    """Return what a kernel lacks that no algorithm can run, whatever is away; at least a byte."""
    away = min(each.workspace_bytes for each in kernel.options) + kernel.held_bytes + kernel.waiting_bytes
    return max(1, away - capacity_bytes - min(kernel.content_bytes, host_bytes))
