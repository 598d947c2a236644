"""Where the times of kernels come from: of those that plans really launch, not of all that a machine's table has."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from vdnnsim.cost.table import CostTable
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.plan.operations import Compute
from vdnnsim.plan.training_plan import TrainingPlan

Kernel: TypeAlias = tuple[int, Phase, str, int]
"""Layer, phase, algorithm, and over how many images."""


@dataclass(frozen=True, slots=True)
class KernelOrigins:
    """The kernels that plans launch, each once, however often it runs and in however many plans.

    Attributes:
        by_kernel: where the seconds of each come from.
        gap: what is to be said of a table of measured kernels that lacks the element type; empty where there is
            nothing to say.
    """

    by_kernel: Mapping[Kernel, Origin] = field(default_factory=dict)
    gap: str = ""

    @property
    def counts(self) -> dict[Origin, int]:
        """How many kernels there are of each origin, of those that occur."""
        counted = Counter(self.by_kernel.values())
        return {origin: counted[origin] for origin in Origin if counted[origin]}


def kernel_origins(plans: Iterable[TrainingPlan], costs: CostTable, batch_size: int) -> KernelOrigins:
    """Return the kernels that some plans launch.

    Args:
        plans: all of one workload.
        costs: what they were made from.
        batch_size: of the workload; kernels that run over all of it do not say so.
    """
    launched = {
        (each.layer, each.phase, each.algorithm, each.images)
        for plan in {id(plan): plan for plan in plans}.values()
        for each in plan.operations
        if isinstance(each, Compute)
    }
    by_kernel = {
        (layer, phase, algorithm, images or batch_size): costs.find(layer, phase, algorithm, images).origin
        for layer, phase, algorithm, images in launched
    }
    return KernelOrigins(by_kernel, costs.gap)


def together(origins: Iterable[KernelOrigins]) -> KernelOrigins:
    """Return the kernels of several workloads on one machine, each once."""
    every = list(origins)
    found = {kernel: origin for each in every for kernel, origin in each.by_kernel.items()}
    return KernelOrigins(found, next((each.gap for each in every if each.gap), ""))
