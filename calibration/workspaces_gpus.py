"""GPUs that need not be there: what cuDNN is told of them, and the peak rates that their maker states.

cuDNN keeps 23 properties of a device, reads them all and refuses a description that lacks one. The compute capability
decides what it offers. Tried on VGG-16, AlexNet and ResNet-50 with TF32, 933 rows: half the cache, half the memory or
an older driver change nothing; half the clocks change 8 names and 8 workspaces, half the multiprocessors 38 names and
no workspace of a name that stays: those of plans that split a sum over multiprocessors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vdnnsim.element_type import ElementType


@dataclass(frozen=True, slots=True)
class DescribedGpu:
    """One GPU.

    Attributes:
        properties: by cuDNN's own names, for `calibration.kernels.cudnn_graphs.described_device`.
        flop_per_s: peak rate without tensor cores.
        tensor_flop_per_s: peak rate of tensor cores, dense; of float32, in TF32.
        dram_bytes_per_s: peak rate of device memory.
    """

    properties: Mapping[str, object]
    flop_per_s: Mapping[ElementType, float]
    tensor_flop_per_s: Mapping[ElementType, float]
    dram_bytes_per_s: float


# Compute capability 9.0 has its limits in the CUDA C++ programming guide, technical specifications per compute
# capability. Rates: NVIDIA H200 datasheet, H200 SXM (https://www.nvidia.com/en-us/data-center/h200/): FP32 67 TFLOPS,
# TF32 989 and FP16, BF16 1,979 TFLOPS "with sparsity", of which dense products reach half (494.7 and 989.4,
# https://glennklockwood.com/garden/processors/h100, which also has the 133.8 of FP16 without tensor cores), 4.8 TB/s.
# The clock of 1,980 MHz and the 132 multiprocessors: https://hmc-tech.com/gpu/nvidia-h100-vs-nvidia-h200-sxm-vs-nvidia-gb200;
# the clock of the memory is assumed, 4.8 TB/s over 6,144 bit at two transfers a cycle and a little above.
H200: Final = DescribedGpu(
    properties={
        "deviceName": "NVIDIA H200",
        "cudaDeviceId": 0,
        "deviceVer": 900,
        "driverVer": 13000,
        "maxGridSize": [2**31 - 1, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536,
        "multiProcessorCount": 132,
        "smClockRateKHz": 1_980_000,
        "memClockRateKHz": 3_201_000,
        "l2CacheSize": 50 * 2**20,
        "warpSize": 32,
        "maxSharedMemoryPerBlock": 48 * 2**10,
        "maxSharedMemoryPerBlockOptin": 227 * 2**10,
        "reservedSharedMemoryPerBlock": 2**10,
        "maxRegistersPerSM": 65536,
        "pciDeviceId": 0,
        "maxCtasPerSM": 32,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": 2048,
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
        "totalGlobalMem": 141_000_000_000,
    },
    flop_per_s={ElementType.FLOAT32: 67e12, ElementType.FLOAT16: 133.8e12, ElementType.BFLOAT16: 133.8e12},
    tensor_flop_per_s={ElementType.FLOAT32: 494.7e12, ElementType.FLOAT16: 989.4e12, ElementType.BFLOAT16: 989.4e12},
    dram_bytes_per_s=4.8e12,
)
