"""Policies held against each other: how they rank by time and by memory, and which of them no other one beats."""

from dataclasses import dataclass

from vdnnsim.analysis.pareto import pareto_front, ranks
from vdnnsim.analysis.results import Declined, PolicyResult, ScenarioResult


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a policy that fits stands among those that do.

    Attributes:
        row: of several GPUs the one that is done last.
        time_rank, memory_rank: 1 for the shortest iteration, and for the least of the most memory in use.
        on_front: whether no other policy is better in one of the two and no worse in the other.
    """

    row: PolicyResult
    time_rank: int
    memory_rank: int
    on_front: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of many policies on one scenario, whether they have a plan or not, and whether it fits or not."""

    result: ScenarioResult

    @property
    def declined(self) -> tuple[Declined, ...]:
        """The policies that have no plan, in the order in which they were asked."""
        return self.result.declined

    @property
    def standings(self) -> tuple[Standing, ...]:
        """The policies that fit, the fastest first, of equally fast ones the one with least memory."""
        fitting = [row for row in self.result.slowest if row.fits]
        costs = [(row.metrics.iteration_s, row.metrics.max_memory_bytes) for row in fitting]
        by_time, by_memory = ranks([time_s for time_s, _ in costs]), ranks([nbytes for _, nbytes in costs])
        standings = map(Standing, fitting, by_time, by_memory, pareto_front(costs))
        return tuple(sorted(standings, key=lambda each: (each.time_rank, each.memory_rank)))

    @property
    def unfit(self) -> tuple[PolicyResult, ...]:
        """The policies that do not fit, in their order."""
        return tuple(row for row in self.result.slowest if not row.fits)
