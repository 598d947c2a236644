"""Ranks of policies by time and memory, and their Pareto front."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vdnnsim.analysis.results import PolicyResult, ScenarioResult


def ranks(values: Sequence[float]) -> tuple[int, ...]:
    """Return the competition rank of each value, 1 for the least."""
    first = {value: rank for rank, value in reversed(list(enumerate(sorted(values), start=1)))}
    return tuple(first[value] for value in values)


def pareto_front(points: Sequence[tuple[float, float]]) -> tuple[bool, ...]:
    """Return for each point of two costs whether it is on the Pareto front, as are equal points."""
    front: set[tuple[float, float]] = set()
    least = float("inf")
    for point in sorted(set(points)):
        if point[1] < least:
            front.add(point)
            least = point[1]
    return tuple(point in front for point in points)


@dataclass(frozen=True, slots=True)
class Standing:
    """Rank of a policy that fits.

    Attributes:
        row: of the slowest GPU.
        time_rank, memory_rank: 1 for the shortest iteration and for the lowest peak of process memory.
        same_numbers: other policies with another plan and the same metrics.
    """

    row: PolicyResult
    time_rank: int
    memory_rank: int
    on_front: bool
    same_plan: tuple[str, ...] = ()
    same_numbers: tuple[str, ...] = ()

    @property
    def policies(self) -> tuple[str, ...]:
        return (self.row.policy, *self.same_plan, *self.same_numbers)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results of many policies on one scenario, with those that do not fit or have no plan."""

    result: ScenarioResult

    @property
    def standings(self) -> tuple[Standing, ...]:
        """The policies that fit by time, then memory; equal metrics share a standing, and ranks count policies."""
        fitting = [row for row in self.result.slowest if row.fits]
        costs = [(row.metrics.iteration_s, self.result.needed_bytes(row)) for row in fitting]
        by_time, by_memory = ranks([time_s for time_s, _ in costs]), ranks([nbytes for _, nbytes in costs])
        found: list[Standing] = []
        for standing in map(Standing, fitting, by_time, by_memory, pareto_front(costs)):
            if all(each.row.metrics != standing.row.metrics for each in found):
                others = [row for row in fitting if row.metrics == standing.row.metrics and row is not standing.row]
                plan = standing.row.trace.plan.operations
                same = tuple(row.policy for row in others if row.trace.plan.operations == plan)
                rest = tuple(row.policy for row in others if row.policy not in same)
                found.append(replace(standing, same_plan=same, same_numbers=rest))
        return tuple(sorted(found, key=lambda each: (each.time_rank, each.memory_rank)))

    @property
    def unfit(self) -> tuple[PolicyResult, ...]:
        return tuple(row for row in self.result.slowest if not row.fits)
