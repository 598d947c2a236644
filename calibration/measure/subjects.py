"""What is measured of networks: every distinct kernel shape once, on the first layer that has it."""

from collections.abc import Iterable
from dataclasses import dataclass

from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload


@dataclass(frozen=True, slots=True)
class Subject:
    """One kernel shape, and a phase of a layer that has it."""

    shape: KernelShape
    workload: Workload
    layer: Layer
    phase: Phase

    @property
    def name(self) -> str:
        """The subject for people: `conv1_1 of vgg16 (64), forward`."""
        network = f"{self.workload.graph.name} ({self.workload.batch_size})"
        return f"{self.layer.name} of {network}, {self.phase.value}"


def distinct_subjects(workloads: Iterable[Workload]) -> tuple[Subject, ...]:
    """Return one subject for each kernel shape of these workloads, in the order in which they first run."""
    subjects: dict[KernelShape, Subject] = {}
    for workload in workloads:
        for layer in workload.graph.layers:
            for phase in workload.phases(layer):
                shape = KernelShape.of(workload, layer, phase)
                subjects.setdefault(shape, Subject(shape, workload, layer, phase))
    return tuple(subjects.values())
