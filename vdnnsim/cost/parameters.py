"""The parameters of the cost model `maxwell`, fitted per machine by `vdnnsim.cost.fit`.

A hardware profile states them in its section `cost_model`. Fractions are of the peak rates in its section `gpu`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from vdnnsim.errors import ProfileError
from vdnnsim.files.messages import not_one_of

_WINOGRAD: Final = frozenset({"winograd_flop_fraction", "winograd_dram_fraction"})
"""Stated together, by profiles of machines whose library has Winograd."""

RATES: Final = ("_flop_fraction", "_dram_fraction")
"""Suffixes of parameters that are fractions of a peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParameters:
    """Parameters of a machine beyond its datasheet.

    Attributes:
        kernel_overhead_s: seconds that any kernel takes before and after its work.
        stream_dram_fraction: fraction of DRAM bandwidth that kernels sustain which touch each element once: ACTV,
            POOL, CONCAT, LOSS, UPDATE, bias, the columns of explicit GEMM, partial sums, and implicit GEMM where it is
            bound by memory.
        product_flop_fraction: fraction of the arithmetic peak that the multiplications of well-tuned matrix products
            sustain: FC, explicit GEMM, implicit GEMM with precomputed indices, the complex products of FFT. Loads and
            starts of tiles are not counted in, nor in the next two.
        implicit_forward_flop_fraction: the same for implicit GEMM, which computes its indices in its loop, forward.
        implicit_backward_flop_fraction: the same for its data gradient and weight gradient (cuDNN's ALGO_0).
        tile_load_flop: multiply-adds in whose time one element of an operand is loaded into a tile.
        tile_start_depth: steps along the reduction in whose time a tile starts and stores its result.
        idle_tail_waves: waves of tiles that are lost while the first tiles start and the last leave multiprocessors
            idle.
        scatter_depth: steps along the reduction in whose time ALGO_0 adds a tile of the data gradient to dX.
        fft_dram_fraction: fraction of DRAM bandwidth that Fourier transforms sustain.
        winograd_flop_fraction: fraction of the arithmetic peak that the multiplications of Winograd sustain where its
            transforms are fused with them; 0 where the library has no Winograd, as cuDNN 4.
        winograd_dram_fraction: fraction of DRAM bandwidth that transforms of Winograd sustain that are not; likewise.
    """

    kernel_overhead_s: float
    stream_dram_fraction: float
    product_flop_fraction: float
    implicit_forward_flop_fraction: float
    implicit_backward_flop_fraction: float
    tile_load_flop: float
    tile_start_depth: float
    idle_tail_waves: float
    scatter_depth: float
    fft_dram_fraction: float
    winograd_flop_fraction: float = 0.0
    winograd_dram_fraction: float = 0.0

    @property
    def has_winograd(self) -> bool:
        return self.winograd_flop_fraction > 0

    @classmethod
    def from_mapping(cls, name: str, values: Mapping[str, float]) -> "CostParameters":
        """Return the parameters of the profile called `name` from its `cost_model`."""
        known = [field.name for field in fields(cls)]
        if not any(values.get(key) for key in _WINOGRAD):
            known = [key for key in known if key not in _WINOGRAD]
            values = {key: value for key, value in values.items() if key not in _WINOGRAD}
        check_parameters(name, values, known, known, "a parameter of this model")
        return cls(**values)


def check_parameters(
    name: str, values: Mapping[str, float], known: Sequence[str], required: Sequence[str], what: str
) -> None:
    """Check the section `cost_model` of the profile called `name`; `what` is what its keys must be.

    Raises:
        ProfileError: a parameter is missing or unknown, or a fraction of a peak is not above 0 and at most 1.
    """
    for key, value in values.items():
        if key not in known:
            raise ProfileError(f"{name}: cost_model: {not_one_of(key, known, what)}")
        if f"_{key}".endswith(RATES) and not 0 < value <= 1:
            raise ProfileError(f"{name}: cost_model.{key}: found {value}, expected a fraction above 0, at most 1")
    if missing := [key for key in required if key not in values]:
        raise ProfileError(f"{name}: cost_model: lacks {', '.join(missing)}")
