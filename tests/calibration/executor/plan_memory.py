"""Repeated executions of plans: PyTorch's allocator beside the model of it, and races."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.calibration.executor.races import Race, WatchedExecutor, find_races
from tests.pytorch_allocator.history import History
from tests.pytorch_allocator.model import Divergence
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    policies: tuple[str, ...]
    refused: str = ""
    requests: int = 0
    reserved_bytes: int = 0
    divergence: Divergence | None = None
    races: tuple[Race, ...] = ()


def compare_plans(
    executor: WatchedExecutor,
    plans: Mapping[tuple[str, ...], TrainingPlan],
    limits: MemoryLimits,
    history: History,
    iterations: int,
) -> Iterator[PlanOutcome]:
    """Execute each plan several times, and replay what PyTorch's allocator did."""
    for policies, plan in plans.items():
        before = history.requests
        races: set[Race] = set()
        refused = ""
        for _ in range(iterations):
            try:
                watched = executor.watch(plan, limits)
            except ExecutionRefused as refusal:
                refused = str(refusal)
                break
            if isinstance(watched, DoesNotFit):
                refused = watched.explain()
                break
            history.replay(watched.entries)
            races.update(find_races(plan.operations, watched.touches))
        beside = history.beside
        yield PlanOutcome(
            policies,
            refused,
            history.requests - before,
            beside.allocator.reserved_bytes,
            beside.divergence,
            tuple(sorted(races, key=lambda race: (race.second, race.first))),
        )


PLAN_COLUMNS: Final = ("network", "policies", "plans", "iterations each", "requests", "divergences", "races")
"""Columns of `plan_row`."""


def plan_row(network: str, iterations: int, outcomes: Sequence[PlanOutcome]) -> tuple[str, ...]:
    ran = [each for each in outcomes if not each.refused]
    return (
        network,
        str(sum(len(each.policies) for each in ran)),
        str(len(ran)),
        str(iterations),
        f"{sum(each.requests for each in ran):,}",
        str(sum(each.divergence is not None for each in ran)),
        str(sum(len(each.races) for each in ran)),
    )
