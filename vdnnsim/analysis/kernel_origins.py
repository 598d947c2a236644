"""Origins of the times of the kernels that plans launch: how many seconds rest on rates of each."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vdnnsim.cost.table import CostModel
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.operations import Compute
from vdnnsim.plans.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class KernelOrigins:
    """The kernels of one iteration of each of several plans.

    Attributes:
        seconds: of all their kernels, by the origin of the rates on which they rest.
        gap: a sentence on what the cost model lacks, as an element type or workspaces; else empty.
    """

    seconds: Mapping[Origin, float] = field(default_factory=dict)
    plans: int = 0
    gap: str = ""


def kernel_origins(plans: Iterable[TrainingPlan], cost_model: CostModel) -> KernelOrigins:
    """Return the seconds of the kernels of distinct plans, by their origins in the cost model."""
    seconds: dict[Origin, float] = defaultdict(float)
    gaps: list[str] = []
    distinct = {id(plan): plan for plan in plans}.values()
    for plan in distinct:
        costs = cost_model.table(plan.workload)
        gaps.append(costs.gap)
        launches = Counter(
            (each.layer, each.phase, each.algorithm, each.operation)
            for each in plan.operations
            if isinstance(each, Compute)
        )
        for kernel, count in launches.items():
            for origin, resting_s in costs.find(*kernel).seconds_by_origin.items():
                seconds[origin] += count * resting_s
    return KernelOrigins(_ordered(seconds), len(distinct), next(filter(None, gaps), ""))


def joined_origins(origins: Iterable[KernelOrigins]) -> KernelOrigins:
    every = list(origins)
    seconds: dict[Origin, float] = defaultdict(float)
    for each in every:
        for origin, resting_s in each.seconds.items():
            seconds[origin] += resting_s
    return KernelOrigins(
        _ordered(seconds), sum(each.plans for each in every), next((each.gap for each in every if each.gap), "")
    )


def _ordered(seconds: Mapping[Origin, float]) -> dict[Origin, float]:
    return {origin: seconds[origin] for origin in Origin if seconds.get(origin)}
