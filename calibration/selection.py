"""Which networks are measured: the defaults of a kind of device, and what a user chose instead."""

from collections.abc import Sequence
from typing import Final

from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.element_type import ElementType

GPU_NETWORKS: Final = {
    "alexnet": (128,),
    "overfeat": (128,),
    "googlenet": (128,),
    "vgg16": (64, 128, 256),
    "vgg116": (32,),
    "vgg216": (32,),
    "vgg316": (32,),
    "vgg416": (32,),
    "resnet50": (64,),
}
"""Batch sizes by network: the ten of the vDNN paper (MICRO 2016, IV-C) and ResNet-50."""

CPU_NETWORKS: Final = {"tiny_linear": (8,), "tiny_forked": (8,), "tiny_residual": (8,)}

_BATCH_SIZE: Final = {"cuda": 64, "cpu": 8}
"""Of a network that is none of the defaults."""


def selected_workloads(
    device_type: str, networks: Sequence[str], batch_sizes: Sequence[int], element_type: ElementType
) -> tuple[Workload, ...]:
    """Return the workloads whose kernels are measured.

    Args:
        device_type: PyTorch's word, `cpu` or `cuda`.
        networks: names; none for the defaults of the device.
        batch_sizes: of every network; none for the defaults of each.
        element_type: of maps and weights.

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
