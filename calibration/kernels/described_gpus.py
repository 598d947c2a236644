"""Properties of GPUs by cuDNN's names, and their peak rates by data sheets, for GPUs that need not exist.

cuDNN reads 23 properties of a device, all required. The compute capability decides its plans. Of 933 rows for VGG-16,
AlexNet and ResNet-50 with TF32, half the cache, half the memory or an older driver change none; half the clocks change
8 names and 8 workspaces, half the multiprocessors 38 names, of plans that split a sum over multiprocessors, and no
workspace of the same name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vdnnsim.units import ElementType


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


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a compute capability: CUDA C++ programming guide, technical specifications per compute capability.

    Attributes:
        device_version: the compute capability, times 100.
        shared_memory_kib: most that a block may opt in to.
        threads, blocks: most that reside on a multiprocessor.
        reserved_kib: of shared memory, for the system, in each block.
    """

    device_version: int
    shared_memory_kib: int
    threads: int
    blocks: int
    reserved_kib: int = 1


@dataclass(frozen=True, slots=True)
class Board:
    """Figures of a GPU that others of its compute capability do not share, as data sheets name them."""

    name: str
    multiprocessors: int
    clock_mhz: int
    memory_clock_mhz: int
    cache_kib: int
    memory_bytes: int


SM_80: Final = Limits(800, 163, 2048, 32)
SM_86: Final = Limits(860, 99, 1536, 16)
SM_89: Final = Limits(890, 99, 1536, 24)
SM_90: Final = Limits(900, 227, 2048, 32)


def properties_of(limits: Limits, board: Board) -> dict[str, object]:
    return {
        "deviceName": board.name,
        "cudaDeviceId": 0,
        "deviceVer": limits.device_version,
        "driverVer": 13000,
        "maxGridSize": [2**31 - 1, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536,
        "multiProcessorCount": board.multiprocessors,
        "smClockRateKHz": 1000 * board.clock_mhz,
        "memClockRateKHz": 1000 * board.memory_clock_mhz,
        "l2CacheSize": board.cache_kib * 2**10,
        "warpSize": 32,
        "maxSharedMemoryPerBlock": 48 * 2**10,
        "maxSharedMemoryPerBlockOptin": limits.shared_memory_kib * 2**10,
        "reservedSharedMemoryPerBlock": limits.reserved_kib * 2**10,
        "maxRegistersPerSM": 65536,
        "pciDeviceId": 0,
        "maxCtasPerSM": limits.blocks,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": limits.threads,
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
        "totalGlobalMem": board.memory_bytes,
    }


_TYPES: Final = (ElementType.FLOAT32, ElementType.FLOAT16, ElementType.BFLOAT16)


def _gpu(
    limits: Limits,
    board: Board,
    rates: tuple[float, float, float],
    tensor_rates: tuple[float, float, float],
    dram: float,
) -> DescribedGpu:
    """Describe a GPU; rates are FLOP/s of float32, float16 and bfloat16, and B/s of device memory."""
    flop_per_s, tensor_flop_per_s = (dict(zip(_TYPES, each, strict=True)) for each in (rates, tensor_rates))
    return DescribedGpu(properties_of(limits, board), flop_per_s, tensor_flop_per_s, dram)


# Rates: NVIDIA H200 datasheet, H200 SXM (https://www.nvidia.com/en-us/data-center/h200/): FP32 67 TFLOPS,
# TF32 989 and FP16, BF16 1,979 TFLOPS "with sparsity", of which dense products reach half (494.7 and 989.4,
# https://glennklockwood.com/garden/processors/h100, which also has the 133.8 of FP16 without tensor cores), 4.8 TB/s.
# The clock of 1,980 MHz and the 132 multiprocessors: https://hmc-tech.com/gpu/nvidia-h100-vs-nvidia-h200-sxm-vs-nvidia-gb200;
# the clock of the memory is assumed, 4.8 TB/s over 6,144 bit at two transfers a cycle and a little above.
_HOPPER: Final = (67e12, 133.8e12, 133.8e12), (494.7e12, 989.4e12, 989.4e12)
H200: Final = _gpu(SM_90, Board("NVIDIA H200", 132, 1980, 3201, 50 << 10, 141_000_000_000), *_HOPPER, 4.8e12)
# The chip of the H200 with 5,120 bit of memory: 3.35 TB/s, https://archive-lib.hpctech.co.jp/gpuproduct/nvidia-h100.html
_H100_SXM: Final = _gpu(SM_90, Board("NVIDIA H100 80GB HBM3", 132, 1980, 2619, 50 << 10, 79 * 2**30), *_HOPPER, 3.35e12)

# Rates and memory: NVIDIA's datasheet of the A100 as in https://glennklockwood.com/garden/processors/A100. Without
# tensor cores, FP16 has 78 TFLOPS and BF16 39: NVIDIA's white paper of the Ampere architecture. Properties: deviceQuery
# in https://upb-pc2.atlassian.net/wiki/spaces/PC2DOK/pages/1900609/NVIDIA+A100+40GB+with+NVLINK; with 80 GB, 5,120 bit
# reach 2,039 GB/s at 1,593 MHz.
_A100: Final = (19.5e12, 78e12, 39e12), (156e12, 312e12, 312e12)
_A100_40GB: Final = _gpu(
    SM_80, Board("NVIDIA A100-SXM4-40GB", 108, 1410, 1215, 40 << 10, 42_405_855_232), *_A100, 1555e9
)
_A100_80GB: Final = _gpu(
    SM_80, Board("NVIDIA A100-SXM4-80GB", 108, 1410, 1593, 40 << 10, round(79.25 * 2**30)), *_A100, 2039e9
)

# Rates, clocks, caches: https://cuttingedgegamer.com/2022/12/ and https://waredb.com/processor/nvidia-geforce-rtx-4090.
# Tensor cores of GeForce reach half with sums in FP32 of what they reach with sums in FP16, and in TF32 the rate of
# FP32 (https://hmc-tech.com/gpu/nvidia-geforce-rtx-4090-d-vs-nvidia-geforce-rtx-3090-ti, the same two chips). With sums
# in FP16 it is 142 TFLOPS: https://holynerdvana.blogspot.com/2022/10/nvidia-geforce-rtx-3090-specifications.html
_RTX_3090: Final = _gpu(
    SM_86,
    Board("NVIDIA GeForce RTX 3090", 82, 1695, 9751, 6 << 10, round(23.7 * 2**30)),
    (35.58e12, 35.58e12, 35.58e12),
    (35.58e12, 71.16e12, 71.16e12),
    936.2e9,
)
_RTX_4090: Final = _gpu(
    SM_89,
    Board("NVIDIA GeForce RTX 4090", 128, 2520, 10501, 72 << 10, round(23.64 * 2**30)),
    (82.58e12, 82.58e12, 82.58e12),
    (82.58e12, 165.15e12, 165.15e12),
    1008e9,
)

GPUS: Final[Mapping[str, DescribedGpu]] = {
    "rtx_3090": _RTX_3090,
    "rtx_4090": _RTX_4090,
    "a100_40gb": _A100_40GB,
    "a100_80gb": _A100_80GB,
    "h100_sxm": _H100_SXM,
    "h200": H200,
}
"""By the name of the profile whose table they are asked for."""
