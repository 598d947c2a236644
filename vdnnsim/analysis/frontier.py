"""Frontier of memory and time: best plan and lower bound by capacity, and other policies beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.analysis.results import Declined
from vdnnsim.plans.certificate import BoundClass


@dataclass(frozen=True, slots=True)
class PlannedTime:
    """Time and actions of a plan; on several GPUs until the last is done.

    Attributes:
        planned_for_bytes: the capacity that it was made for.
        complete: whether its search ended before the time limit.
    """

    iteration_s: float
    planned_for_bytes: int
    offloaded_bytes: int = 0
    recomputed_layers: int = 0
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound for a class of schedules."""

    seconds: float
    holds_for: BoundClass


@dataclass(frozen=True, slots=True)
class Searched:
    """Result of a planner for one capacity: a plan where one fits, a bound where one is proven."""

    capacity_bytes: int
    plan: PlannedTime | None
    bound: Bound | None


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """The fastest plan within a capacity, which includes the context, and its lower bound if one is proven."""

    capacity_bytes: int
    plan: PlannedTime
    bound: Bound | None

    @property
    def gap(self) -> float | None:
        return None if self.bound is None else self.plan.iteration_s / self.bound.seconds - 1


@dataclass(frozen=True, slots=True)
class PolicyTimes:
    """Times of a policy by capacity: at the least that it fits into, or at those tried if it depends on memory."""

    policy: str
    times: tuple[tuple[int, float], ...]

    def at(self, capacity_bytes: int) -> float | None:
        """Return its shortest time within a capacity; None where it does not fit."""
        return min((seconds for nbytes, seconds in self.times if nbytes <= capacity_bytes), default=None)


@dataclass(frozen=True, slots=True)
class Frontier:
    """The frontier of a workload on a machine.

    Attributes:
        planner: the policy whose plans make the frontier.
        declined: policies without a plan, or that never fit.
        kernels: of all plans.
    """

    planner: str
    points: tuple[FrontierPoint, ...]
    policies: tuple[PolicyTimes, ...] = ()
    declined: tuple[Declined, ...] = ()
    kernels: KernelOrigins = field(default_factory=KernelOrigins)

    def point_at(self, capacity_bytes: int) -> FrontierPoint | None:
        """Return the last point within a capacity; None below the first."""
        return next((each for each in reversed(self.points) if each.capacity_bytes <= capacity_bytes), None)

    def slower(self, seconds: float) -> float:
        """Return how much longer a time is than that of the planner with the most memory, as a fraction."""
        return seconds / self.points[-1].plan.iteration_s - 1

    def best_policy(self, capacity_bytes: int) -> tuple[str, float] | None:
        """Return the fastest other policy that fits, with its time; None where none does."""
        found = [(each.policy, seconds) for each in self.policies if (seconds := each.at(capacity_bytes)) is not None]
        return min(found, key=lambda each: each[1], default=None)


def frontier_points(searched: Sequence[Searched]) -> tuple[FrontierPoint, ...]:
    """Return a monotone frontier of results in order of capacity; a plan fits into the first.

    A plan for less memory fits into more, and a bound for more memory holds for less, as does one of a larger class.
    """
    points: list[FrontierPoint] = []
    best = searched[0].plan
    for number, each in enumerate(searched):
        assert best is not None, "found no plan for the least capacity"
        if each.plan is not None and each.plan.iteration_s < best.iteration_s:
            best = each.plan
        points.append(FrontierPoint(each.capacity_bytes, best, _bound(searched[number:])))
    return tuple(points)


def _bound(searched: Sequence[Searched]) -> Bound | None:
    """Return the highest bound of a capacity and those above it that holds for its class."""
    own, bounds = searched[0].bound, (each.bound for each in searched if each.bound is not None)
    if own is None:
        return None
    return max((each for each in bounds if each.holds_for.includes(own.holds_for)), key=lambda each: each.seconds)
