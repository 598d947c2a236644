"""Products on tensor cores of operands whose rows do not begin at multiples of 16 B, as of a vocabulary of 50257.

The kernels that copy tiles asynchronously or by the tensor memory accelerator need rows that do. For others cuBLAS
takes those of Turing, as `cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1` on an RTX 4090. They multiply by
mma.sync, and a lane of a load/store unit loads but as many bytes at a time as rows allow:

    multiply-adds in whose time an element is loaded
        tensor_load_flop + element bytes / width x peak of tensor cores / peak of CUDA cores x CUDA cores per lane

Nothing is fitted: the lanes are those of the datasheets. That multiplications hide stores to shared memory, but not
loads, is assumed in view of four squares of 2055 to 2073 on an RTX 4090, 107 to 116 TFLOP/s where one of 2040 reaches
156 (https://github.com/pytorch/pytorch/issues/181718). A result whose rows do not begin so costs nothing here: each of
its elements is stored once, while those of operands are loaded for every tile.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from vdnnsim.cost.convolution_shape import LOAD_BYTES
from vdnnsim.cost.efficiency_parameters import EfficiencyParameters
from vdnnsim.cost.tiled_product import ProductRates
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType


def loses_by_narrow_loads(server: Server) -> bool:
    """Whether products on a machine take longer for rows that do not begin so: without tensor cores they do not."""
    return bool(server.cost_model.get("cuda_cores_per_lane"))


def narrow_rates(
    rates: ProductRates,
    parameters: EfficiencyParameters,
    flop_per_s: Mapping[ElementType, float],
    element_type: ElementType,
    row_elements: int,
) -> ProductRates:
    """Return the rates of a product on tensor cores by the rows of its operands.

    Args:
        rates: where rows begin at multiples of 16 B.
        parameters: of the GPU.
        flop_per_s: its peaks.
        element_type: of the operands.
        row_elements: greatest common divisor of the lengths of the rows.
    """
    width, share = math.gcd(row_elements * element_type.nbytes, LOAD_BYTES), parameters.mma_sync_share
    if width == LOAD_BYTES or not parameters.cuda_cores_per_lane:
        return rates
    ratio = flop_per_s[element_type] / flop_per_s[ElementType.FLOAT32]
    loaded_flop = element_type.nbytes / width * ratio * parameters.cuda_cores_per_lane
    # Loads take as long by whatever instruction the tensor cores multiply.
    return replace(
        rates, flop_per_s=rates.flop_per_s * share, tile_load_flop=rates.tile_load_flop + loaded_flop * share
    )
