"""Distinct kernel shapes of networks, each with the first layer that has it; default networks and batch sizes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.units import ElementType

GPU_NETWORKS: Final = {
    "alexnet": (128,),
    "overfeat": (128,),
    "googlenet": (128,),
    "vgg16": (64, 128, 256),
    **dict.fromkeys(("vgg116", "vgg216", "vgg316", "vgg416"), (32,)),
    "resnet50": (64,),
}
"""Batch sizes by network: the ten of the vDNN paper (MICRO 2016, IV-C) and ResNet-50."""

CPU_NETWORKS: Final = {"tiny_linear": (8,), "tiny_forked": (8,), "tiny_residual": (8,)}

_BATCH_SIZE: Final = {"cuda": 64, "cpu": 8}
"""Of other networks."""


def selected_workloads(
    device_type: str, networks: Sequence[str], batch_sizes: Sequence[int], element_type: ElementType
) -> tuple[Workload, ...]:
    """Return the workloads whose kernels are measured, by default those of the device type.

    Raises:
        InputError: no network has one of these names.
    """
    defaults = GPU_NETWORKS if device_type == "cuda" else CPU_NETWORKS
    usual = (_BATCH_SIZE[device_type],)
    return tuple(
        Workload(build_network(network), batch_size, element_type)
        for network in dict.fromkeys(networks or defaults)
        for batch_size in dict.fromkeys(batch_sizes or defaults.get(network, usual))
    )


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One kernel shape, and a phase of a layer that has it."""

    shape: KernelShape
    workload: Workload
    layer: Layer
    phase: Phase

    @property
    def name(self) -> str:
        """Its name in messages: `conv1_1 of vgg16 (64), forward`."""
        network = f"{self.workload.graph.name} ({self.workload.batch_size})"
        return f"{self.layer.name} of {network}, {self.phase.value}"


def distinct_cases(workloads: Iterable[Workload]) -> tuple[KernelCase, ...]:
    """Return one case for each kernel shape of these workloads, in the order in which they first run."""
    cases: dict[KernelShape, KernelCase] = {}
    for workload in workloads:
        for layer in workload.graph.layers:
            for phase in workload.phases(layer):
                shape = KernelShape.of(workload, layer, phase)
                cases.setdefault(shape, KernelCase(shape, workload, layer, phase))
    return tuple(cases.values())
