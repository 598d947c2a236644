"""The parameters of the cost model: few, each with a physical meaning, fitted per machine by `vdnnsim.cost.fit`.

A hardware profile states them in its section `cost_model`. Fractions are of the peak rates in its section `gpu`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from vdnnsim.errors import ProfileError


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParameters:
    """What the model of kernel times needs to know of a machine beyond its datasheet.

    Attributes:
        kernel_overhead_s: seconds that any kernel takes before and after its work.
        stream_dram_fraction: fraction of DRAM bandwidth that kernels sustain which touch each element once: ACTV,
            CONCAT, LOSS, UPDATE, bias, the columns of explicit GEMM.
        pool_dram_fraction: the same for POOL, whose windows overlap.
        gemm_flop_fraction: fraction of the arithmetic peak that plain matrix products sustain: FC, explicit GEMM.
        implicit_forward_flop_fraction: the same for implicit GEMM, forward; loads and starts of tiles not counted in.
        implicit_backward_data_flop_fraction: the same for its data gradient (cuDNN's ALGO_0).
        implicit_backward_weights_flop_fraction: the same for its weight gradient (ALGO_0).
        precomp_forward_flop_fraction: the same for implicit GEMM with precomputed indices, forward.
        precomp_backward_data_flop_fraction: the same for its data gradient (ALGO_1).
        precomp_backward_weights_flop_fraction: the same for its weight gradient (ALGO_1).
        tile_load_flop: multiply-adds in whose time one element of an operand is loaded into a tile.
        tile_start_depth: steps along the reduction in whose time a tile starts and stores its result.
        idle_tail_waves: waves of tiles that are lost while the last tiles leave multiprocessors idle.
        scatter_depth: steps along the reduction in whose time ALGO_0 adds a tile of the data gradient to dX.
        partial_sums_s: seconds to clear dW and to join the partial sums of a weight gradient.
        inserted_zero_fraction: share of the zeros between the pixels of a strided dY that ALGO_1 multiplies.
        implicit_dram_fraction: fraction of DRAM bandwidth that implicit GEMM sustains.
        fft_flop_fraction: fraction of the arithmetic peak of the complex products between transforms.
        fft_dram_fraction: fraction of DRAM bandwidth of transforms of whole maps.
        fft_tiling_dram_fraction: the same for transforms of 32 x 32 tiles.
    """

    kernel_overhead_s: float
    stream_dram_fraction: float
    pool_dram_fraction: float
    gemm_flop_fraction: float
    implicit_forward_flop_fraction: float
    implicit_backward_data_flop_fraction: float
    implicit_backward_weights_flop_fraction: float
    precomp_forward_flop_fraction: float
    precomp_backward_data_flop_fraction: float
    precomp_backward_weights_flop_fraction: float
    tile_load_flop: float
    tile_start_depth: float
    idle_tail_waves: float
    scatter_depth: float
    partial_sums_s: float
    inserted_zero_fraction: float
    implicit_dram_fraction: float
    fft_flop_fraction: float
    fft_dram_fraction: float
    fft_tiling_dram_fraction: float

    @classmethod
    def from_mapping(cls, name: str, values: Mapping[str, float]) -> "CostParameters":
        """Return the parameters of the profile called `name` from its `cost_model`.

        Raises:
            ProfileError: a parameter is missing or unknown, or a fraction of a peak is not above 0 and at most 1.
        """
        expected = {field.name for field in fields(cls)}
        for problem, keys in (("lacks", expected - values.keys()), ("does not know", values.keys() - expected)):
            if keys:
                raise ProfileError(f"{name}: cost_model: {problem} {', '.join(sorted(keys))}")
        for key, value in values.items():
            if key.endswith(("_flop_fraction", "_dram_fraction")) and not 0 < value <= 1:
                raise ProfileError(f"{name}: cost_model.{key}: found {value}, expected a fraction above 0, at most 1")
        return cls(**values)
