"""Where the times of kernels come from: of those that plans really launch, not of all that a machine's table has."""

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
"""Layer, phase, algorithm, and over how many images."""


@dataclass(frozen=True, slots=True)
class KernelOrigins:
    """The kernels that plans launch, each once, however often it runs and in however many plans.

    Attributes:
        by_kernel: where the seconds of each come from.
        gap: what is to be said of what is not known: a table of measured kernels lacks the element type, a roofline
            knows no workspaces; empty where there is nothing to say.
    """

    by_kernel: Mapping[Kernel, Origin] = field(default_factory=dict)
    gap: str = ""

    @property
    def counts(self) -> dict[Origin, int]:
        """How many kernels there are of each origin, of those that occur."""
        counted = Counter(self.by_kernel.values())
        return {origin: counted[origin] for origin in Origin if counted[origin]}


def kernel_origins(plans: Iterable[TrainingPlan], cost_model: CostModel) -> KernelOrigins:
    """Return the kernels that some plans launch, by what they cost for the workload of each."""
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
    """Return the kernels of several workloads on one machine, each once."""
    every = list(origins)
    found = {kernel: origin for each in every for kernel, origin in each.by_kernel.items()}
    return KernelOrigins(found, next((each.gap for each in every if each.gap), ""))
