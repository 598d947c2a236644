"""Origins of the times of the kernels that plans launch."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.operations import Compute
from vdnnsim.plans.training_plan import TrainingPlan

Kernel: TypeAlias = tuple[int, Phase, str, int]
"""Layer, phase, algorithm, and number of images."""


@dataclass(frozen=True, slots=True)
class KernelOrigins:
    """Distinct kernels of plans.

    Attributes:
        by_kernel: origin of the seconds of each.
        gap: a sentence on what the cost model lacks, as an element type or workspaces; else empty.
    """

    by_kernel: Mapping[Kernel, Origin] = field(default_factory=dict)
    gap: str = ""

    @property
    def counts(self) -> dict[Origin, int]:
        """Number of kernels by origin."""
        counted = Counter(self.by_kernel.values())
        return {origin: counted[origin] for origin in Origin if counted[origin]}


def kernel_origins(plans: Iterable[TrainingPlan], cost_model: CostModel) -> KernelOrigins:
    """Return the kernels of plans, with their origins in the cost model."""
    by_kernel: dict[Kernel, Origin] = {}
    gaps: list[str] = []
    for plan in {id(plan): plan for plan in plans}.values():
        workload = plan.workload
        costs = cost_model.table(workload)
        gaps.append(costs.gap)
        launched = {(each.layer, each.phase, each.algorithm) for each in plan.operations if isinstance(each, Compute)}
        for layer, phase, algorithm in launched:
            images = workload.batch_size if phase is Phase.UPDATE else workload.part_size
            by_kernel[layer, phase, algorithm, images] = costs.find(layer, phase, algorithm).origin
    return KernelOrigins(by_kernel, next(filter(None, gaps), ""))


def joined_origins(origins: Iterable[KernelOrigins]) -> KernelOrigins:
    """Return the distinct kernels of several workloads on one machine."""
    every = list(origins)
    found = {kernel: origin for each in every for kernel, origin in each.by_kernel.items()}
    return KernelOrigins(found, next((each.gap for each in every if each.gap), ""))
