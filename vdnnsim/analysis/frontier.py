"""The trade between memory and time: by capacity the best plan and a bound, and policies as points beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.analysis.results import Declined
from vdnnsim.plans.certificate import BoundClass


@dataclass(frozen=True, slots=True)
class PlannedTime:
    """A plan in the simulator: its time, of several GPUs until the last is done, and what it does.

    Attributes:
        planned_for_bytes: the capacity that it was made for.
        complete: whether the search for it came to its end, and not only to its time limit.
    """

    iteration_s: float
    planned_for_bytes: int
    offloaded_bytes: int = 0
    recomputed_layers: int = 0
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """No schedule of a class takes less."""

    seconds: float
    holds_for: BoundClass


@dataclass(frozen=True, slots=True)
class Searched:
    """What a planner found for one capacity: a plan where one fits, a bound where it proves one."""

    capacity_bytes: int
    plan: PlannedTime | None
    bound: Bound | None


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """The best that is known of one capacity, the framework's context included.

    Attributes:
        plan: the fastest of those made for no more memory.
        bound: None where nothing is proven.
    """

    capacity_bytes: int
    plan: PlannedTime
    bound: Bound | None

    @property
    def gap(self) -> float | None:
        """How far the plan is above the bound, as a fraction."""
        return None if self.bound is None else self.plan.iteration_s / self.bound.seconds - 1


@dataclass(frozen=True, slots=True)
class PolicyTimes:
    """A policy beside the frontier: capacities into which it fits, with the time that it takes there.

    Of one that looks at no memory it is the least that it fits into, of any other those that were tried.
    """

    policy: str
    times: tuple[tuple[int, float], ...]

    def at(self, capacity_bytes: int) -> float | None:
        """Return its shortest time in this memory or less; None where it fits into none of them."""
        return min((seconds for nbytes, seconds in self.times if nbytes <= capacity_bytes), default=None)


@dataclass(frozen=True, slots=True)
class Frontier:
    """The frontier of a workload on a machine.

    Attributes:
        planner: the policy whose plans make it.
        points: by capacity, the least first.
        policies: in the order in which they were asked for.
        declined: those without a plan, or that fit nowhere.
        kernels: what all plans launch.
    """

    planner: str
    points: tuple[FrontierPoint, ...]
    policies: tuple[PolicyTimes, ...] = ()
    declined: tuple[Declined, ...] = ()
    kernels: KernelOrigins = field(default_factory=KernelOrigins)

    def point_at(self, capacity_bytes: int) -> FrontierPoint | None:
        """Return what is known of a capacity: the point of the most memory that it has; None below the least."""
        return next((each for each in reversed(self.points) if each.capacity_bytes <= capacity_bytes), None)

    def slower(self, seconds: float) -> float:
        """Return how much longer a time is than that of the planner where nothing has to leave, as a fraction."""
        return seconds / self.points[-1].plan.iteration_s - 1

    def best_policy(self, capacity_bytes: int) -> tuple[str, float] | None:
        """Return the fastest policy beside the planner that fits, with its time; None where none does."""
        found = [(each.policy, seconds) for each in self.policies if (seconds := each.at(capacity_bytes)) is not None]
        return min(found, key=lambda each: each[1], default=None)


def frontier_points(searched: Sequence[Searched]) -> tuple[FrontierPoint, ...]:
    """Return points of which more memory is never slower.

    A plan for less memory is a plan for more, and what no schedule beats in more memory none beats in less; a bound
    that holds for any schedule holds for those of the other class.

    Args:
        searched: by capacity, the least first, into which a plan fits.
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
    """Return the highest bound of a capacity and of those above it."""
    own, bounds = searched[0].bound, (each.bound for each in searched if each.bound is not None)
    if own is None:
        return None
    return max((each for each in bounds if each.holds_for.includes(own.holds_for)), key=lambda each: each.seconds)
