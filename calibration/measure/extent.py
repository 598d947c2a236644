"""How much is measured, and how long that may take, by the kind of device."""

from dataclasses import dataclass
from typing import Final

from calibration.measure.timing import TimeBox, WarmUp
from vdnnsim.units import GIB, MIB


@dataclass(frozen=True, slots=True)
class Extent:
    """Sizes and times of a calibration.

    Attributes:
        largest_copy: bytes of the largest copy; copies beside other work have a sixteenth of it.
        largest_pin: bytes of the largest block that is pinned for the sake of timing that.
        product_side: rows and columns of the matrices whose product shows the arithmetic rate.
        stream_bytes: what the kernel reads that shows the bandwidth of device memory.
        copies: how often a copy is run; also the two kernels above.
        kernels_s: what the kernels of all shapes together may take, which each shape has an equal share of. Slow ones
            take longer, for each is run a few times.
        window_s: how long work runs beside other work, at least.
        warm_up: how long a large work is repeated before others are timed, on the compute stream twice and in each
            direction of the link once.
    """

    largest_copy: int
    largest_pin: int
    product_side: int
    stream_bytes: int
    copies: TimeBox
    kernels_s: float
    window_s: float
    warm_up: WarmUp


GPU_EXTENT: Final = Extent(
    largest_copy=GIB,
    largest_pin=256 * MIB,
    product_side=8192,
    stream_bytes=GIB,
    copies=TimeBox(budget_s=0.3),
    kernels_s=180.0,
    window_s=0.05,
    # Assumed of clocks and links: how fast they rise nobody measured here.
    warm_up=WarmUp(shortest_s=0.5, longest_s=3.0),
)
CPU_EXTENT: Final = Extent(
    largest_copy=64 * MIB,
    largest_pin=64 * MIB,
    product_side=512,
    stream_bytes=64 * MIB,
    copies=TimeBox(budget_s=0.1),
    kernels_s=6.0,
    window_s=0.05,
    warm_up=WarmUp(shortest_s=0.05, longest_s=0.5),
)


def extent_of(device_type: str) -> Extent:
    """Return how much is measured on a kind of device, which goes by PyTorch's word: `cpu` or `cuda`."""
    return GPU_EXTENT if device_type == "cuda" else CPU_EXTENT
