"""The recomputation search: which buffers to drop and recompute, so that the iteration with its copies is shortest.

A set of dropped buffers gives an order of kernels, which is valued by its fluid optimum, and with addresses by a plan
that is made at once. The relaxation of the bound (`vdnnsim.planning.recomputation_bound`) says what to drop: it splits
few buffers, which are dropped or kept by several thresholds, and of equal blocks equally many, evenly spread; or all
but checkpoints are dropped. Where kernels lack memory because buffers were restored before, some of these are kept.
What an order restores fills memory that the relaxation counts as free, and with addresses its plan may lack some, so it
is solved again with as much less. It also takes buffers for divisible: of whole ones a large one may have to be moved
for the few bytes that the others lack. Where that costs much, it is solved again for orders that drop that one.

If that is not good enough, checkpointed segments, all but the last, are tried, which fragment little. Then, from the
best of these, or while none fits from the one that lacks least, more and fewer of equal buffers are dropped, evenly
spread and again with some of them kept, as long as that helps; at last ranges are dropped or kept, large ranges first.

It ends at its goal, or when its effort is spent.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import inf
from typing import Final, NamedTuple

from vdnnsim.planning.effort import Effort
from vdnnsim.planning.fluid_bound import Links, Optimum, fluid_optimum, stages_of
from vdnnsim.planning.problem import Problem
from vdnnsim.planning.recomputation import Recomputation
from vdnnsim.planning.recomputation_bound import recomputation_bound
from vdnnsim.planning.restored import Restored, restored, restored_too_early
from vdnnsim.plans.schedule import Run

ROUNDS: Final = 4
"""Relaxations that are solved."""
SEGMENTS: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of checkpointed segments."""
THRESHOLDS: Final = (0.01, 0.5, 0.99)
"""Fractions of the relaxation from which on a buffer is dropped."""
STEPS: Final = (1 / 4, 1 / 8, 1 / 16, 1 / 32)
"""Changes of the dropped shares of equal buffers, from coarse to fine."""
MARGIN: Final = 5e-4
"""Least gain, as a fraction of the iteration."""
ENOUGH: Final = 2e-3
"""Distance to the relaxation, as a fraction, from which on its rounding is good enough."""


@dataclass(frozen=True, slots=True)
class Order:
    """The kernels of an iteration in which some buffers are dropped and restored.

    Attributes:
        problem: in which only buffers idle during one kernel may be on the host.
        states_s: additional seconds for states and weight gradients on the host.
        lost_s: seconds by which its plan exceeds the optimum, with addresses.
    """

    dropped: frozenset[int]
    problem: Problem
    optimum: Optimum
    states_s: float
    lost_s: float = 0.0

    @property
    def seconds(self) -> float:
        return self.optimum.seconds + self.states_s + self.lost_s


class Verdict(NamedTuple):
    """The result of planning an order with addresses.

    Attributes:
        lost_s: seconds by which its plan exceeds the optimum.
        lacking_bytes: of the first request that fails; 0 if the plan fits.
        bulky: the largest buffer that it moves, if whole ones lose much.
    """

    lost_s: float = 0.0
    lacking_bytes: int = 0
    bulky: frozenset[int] = frozenset()


@dataclass
class DropSearch:
    """A search for the best order.

    Attributes:
        links, host_bytes: as of the fluid bound.
        goal_s: lower bound at which the search ends, raised to that of what it can find.
        found: receives the seconds of every better order.
        begin: the order that drops nothing; None where it does not fit.
        states_s: returns the additional seconds of an order for buffers on the host.
        look: most effort of a try so far.
        known: sets that are tried first.
    """

    recomputation: Recomputation
    problem_of: Callable[[list[Run]], Problem]
    links: Links
    host_bytes: int
    effort: Effort
    goal_s: float
    found: Callable[[float], None] | None
    begin: Order | None
    states_s: Callable[[Problem, float], float] = lambda _problem, _seconds: 0.0
    look: float = 0.0
    judged: Callable[[Order, Effort], Verdict] = lambda _order, _effort: Verdict()
    known: Sequence[frozenset[int]] = ()

    def __post_init__(self) -> None:
        self._found = [self.begin] if self.begin else []
        self._tried = {each.dropped for each in self._found}
        self._bulky = frozenset[int]()
        # The best set, or while none fits the one that lacks least, and how much that is.
        self._base: frozenset[int] = frozenset()
        self._lacking = (0.0, 0.0) if self.begin else (inf, inf)
        # Of sets that are looked at twice in a row.
        self._whole = lru_cache(maxsize=8)(lambda dropped: self.problem_of(self.recomputation.order(dropped)))
        # Orders that fit by their bytes and fragment, the best last, and what those tried last lack at most.
        self.displaced, self._short_bytes = list[Order](), 0

    def orders(self) -> list[Order]:
        """Return the orders found, each better than the last, from `begin` on, also if the search is interrupted."""
        with suppress(KeyboardInterrupt):
            if self._found and self._is_over():
                return self._found
            segments = map(self.recomputation.segmented, SEGMENTS)
            if self._all_tried(((), *self.known)) and self._relaxed() and self._all_tried(segments) and self._adjust():
                self._refine()
        return self._found

    def _relaxed(self) -> bool:
        """Try what relaxations recompute; return whether the search is not over."""
        whole = self._whole(frozenset())
        # What waits within forward or backward stays on the GPU.
        turn = whole.fullest
        begin = problem = whole.around(turn)
        made, always = Restored(), frozenset[int]()
        for _ in range(ROUNDS):
            seconds, again = recomputation_bound(problem, self.links, self.host_bytes, self.effort, made)
            if not again:
                break
            if not (made.until or always):
                self.goal_s = max(self.goal_s, seconds)
            self._short_bytes = 0
            proposals = self._rounded(again, () if made.until else SEGMENTS)
            in_time = self._all_tried((always.union(each) for each in proposals), repair=True)
            if not in_time or self._is_over(ENOUGH):
                return False
            if not always >= self._bulky:
                always |= self._bulky
                whole = self._whole(always)
                problem, made = whole.around(whole.fullest), Restored()
                continue
            if always:
                break
            dropped = frozenset(each for each in self.recomputation.droppable if again.get(each, 0.0) >= THRESHOLDS[0])
            whole, before = self._whole(dropped), (problem, made)
            begin = replace(begin, capacity_bytes=begin.capacity_bytes - self._short_bytes)
            problem, made = restored(begin, turn, whole, dropped)
            if (problem, made) == before:
                break
        return not self._is_over(ENOUGH)

    def _rounded(self, again: Mapping[int, float], segments: Iterable[int]) -> Iterator[Iterable[int]]:
        least, half, most = (
            [each for each in self.recomputation.droppable if again.get(each, 0.0) >= part] for part in THRESHOLDS
        )
        yield from (least, half, most)
        yield _spread_over(
            self._equal, [sum(again.get(each, 0.0) for each in group) / len(group) for group in self._equal]
        )
        for count in () if self._bulky else segments:
            yield frozenset(half).difference(self.recomputation.checkpoints(count))

    def _all_tried(self, proposals: Iterable[Iterable[int]], *, repair: bool = False) -> bool:
        """Try sets until the search is over, and those with `repair` with more kept; return whether it is not."""
        for proposed in proposals:
            if self._is_over() and (self._tried or self.effort.with_grace.is_over):
                return False
            self._try_repaired(proposed) if repair else self._try(proposed)
        return not self._is_over()

    def _try_repaired(self, proposed: Iterable[int]) -> bool:
        """Try a set, and with more kept as long as kernels lack memory; return whether one is the best so far."""
        dropped = frozenset(proposed)
        is_best = self._try(dropped)
        while self._too_early and not self._is_over():
            dropped -= self._too_early
            is_best |= self._try(dropped)
        return is_best

    @cached_property
    def _equal(self) -> list[list[int]]:
        """Groups of the same buffer of equal blocks, most bytes first."""
        equal = defaultdict[Hashable, list[int]](list)
        for each in self.recomputation.droppable:
            equal[self.recomputation.alike(each)].append(each)
        return sorted(equal.values(), key=lambda each: -len(each) * self.recomputation.nbytes(each[0]))

    def _adjust(self) -> bool:
        """Drop more and fewer of equal buffers than the best set, evenly spread; return whether effort is left."""
        groups = self._equal
        self._try(_spread_over(groups, [len(self._base.intersection(group)) / len(group) for group in groups]))
        for step in STEPS:
            helped = True
            while helped:
                helped = False
                for group, more in product(groups, (True, False)):
                    if self._is_over():
                        return False
                    others = [each for each in group if (each in self._base) is not more]
                    share = min(1.0, step * len(group) / max(1, len(others)))
                    helped |= self._try_repaired(self._base.symmetric_difference(_spread_over([others], [share])))
        return True

    def _try(self, dropped: Iterable[int]) -> bool:
        """Try a set, and return whether it is the best so far; else `_too_early` fills memory that kernels lack."""
        buffers, self._too_early = frozenset(dropped), frozenset[int]()
        if buffers in self._tried:
            return False
        self._tried.add(buffers)
        spent = self.effort.spent
        is_best = self._is_best(buffers)
        self.look = max(self.look, self.effort.spent - spent)
        return is_best

    def _is_best(self, buffers: frozenset[int]) -> bool:
        whole = self._whole(buffers)
        self.effort.spend(len(whole.kernels))
        turn = whole.fullest
        problem = whole.around(turn)
        best_s = self._found[-1].seconds if self._found else inf
        if problem.fastest_s >= best_s * (1 - MARGIN):
            return False
        stages = stages_of(problem, self.links, self.host_bytes)
        lacking = {
            at: kernel.lacking_bytes(problem.capacity_bytes, self.host_bytes)
            for at, (kernel, stage) in enumerate(zip(problem.kernels, stages, strict=True))
            if not stage.needs
        }
        if lacking:
            self._too_early = restored_too_early(whole, turn, lacking, buffers, self.recomputation.price)
            return self._is_nearer(buffers, (1, sum(lacking.values())))
        optimum = fluid_optimum(stages, self.links, MARGIN, self.effort, best_s * (1 - MARGIN))
        found = Order(buffers, problem, optimum, self.states_s(whole, optimum.seconds))
        if found.seconds >= best_s * (1 - MARGIN):
            return False
        lost_s, short_bytes, bulky = self.judged(found, self.effort)
        if short_bytes:
            self.displaced.append(found)
            self._short_bytes = max(self._short_bytes, short_bytes)
            return self._is_nearer(buffers, (0, short_bytes))
        found = replace(found, lost_s=lost_s)
        if found.seconds >= best_s * (1 - MARGIN):
            return False
        self._base, self._lacking = buffers, (0, 0)
        self._bulky = bulky.intersection(self.recomputation.droppable)
        self._found.append(found)
        if self.found is not None:
            self.found(found.seconds)
        return True

    def _is_nearer(self, buffers: frozenset[int], lacking: tuple[int, int]) -> bool:
        """Continue from a set if it lacks less than any before it, while none fits."""
        if lacking >= self._lacking:
            return False
        self._base, self._lacking = buffers, lacking
        return True

    def _refine(self) -> None:
        """Toggle ranges of buffers, halving their length whenever none helps."""
        order = self.recomputation.droppable
        length = max(1, len(order) // 4)
        while True:
            helped = False
            for start in range(0, len(order), max(1, length // 2)):
                part, now = set(order[start : start + length]), self._base
                helped |= sum(map(self._try, (now - part, now | part, now ^ part))) > 0
                if self._is_over():
                    return
            if not helped:
                if length == 1:
                    return
                length = max(1, length // 2)

    def _is_over(self, near: float = MARGIN) -> bool:
        if self._found and self._found[-1].seconds <= self.goal_s * (1 + near):
            return True
        return not self.effort.allows(self.look)


def _spread_over(groups: Iterable[Sequence[int]], shares: Iterable[float]) -> Iterator[int]:
    """Yield a share of each group, evenly spread over it."""
    for group, share in zip(groups, shares, strict=True):
        yield from (each for at, each in enumerate(group) if int((at + 1) * share + 0.5) > int(at * share + 0.5))
