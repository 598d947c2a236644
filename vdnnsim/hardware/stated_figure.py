"""Annotations that define the figures of a profile, and their ranges.

    memory_bytes: Annotated[int, Stated("memory", MEMORY, "that the pool may hand out")]

makes the field `memory_bytes` of `vdnnsim.hardware.server.Gpu` the figure `gpu.memory`. Reading, writing, varying and
explaining of figures follow from these annotations (`vdnnsim.hardware.figures`). A field with a default is optional,
one of type int is an integer.
"""

from dataclasses import dataclass
from typing import Final

from vdnnsim.units import GIB, Dimension


@dataclass(frozen=True, slots=True)
class Range:
    """Dimension, limits and an example of a figure."""

    dimension: Dimension
    low: float
    high: float
    shown: str
    example: str


MEMORY: Final = Range(Dimension.BYTES, 1, 2**60, "1 B to 1 EiB", "16 GiB")
GRANULE: Final = Range(Dimension.BYTES, 1, GIB, "1 B to 1 GiB", "512 B")
RATE: Final = Range(Dimension.BYTES_PER_SECOND, 1, 1e18, "1 B/s to 1e18 B/s", "300 GB/s")
PEAK: Final = Range(Dimension.FLOP_PER_SECOND, 1, 1e18, "1 FLOP/s to 1e18 FLOP/s", "60 TFLOP/s")
TIME: Final = Range(Dimension.SECONDS, 0, 10, "0 s to 10 s", "10 us")
WATTS: Final = Range(Dimension.WATTS, 0, 1e5, "0 W to 100 kW", "250 W")
FLOP_ENERGY: Final = Range(Dimension.JOULES_PER_FLOP, 0, 1, "0 J/FLOP to 1 J/FLOP", "15 pJ/FLOP")
BYTE_ENERGY: Final = Range(Dimension.JOULES_PER_BYTE, 0, 1, "0 J/B to 1 J/B", "80 pJ/B")
UNITS: Final = Range(Dimension.COUNT, 1, 1e6, "1 to 1000000", "132")
CAPABILITY: Final = Range(Dimension.COUNT, 3, 99, "3 to 99", "9.0")
FRACTION: Final = Range(Dimension.COUNT, 0.001, 1, "0.001 to 1", "0.9")
PARAMETER: Final = Range(Dimension.COUNT, 0, 1e6, "0 to 1000000", "0.75")
"""Of a cost model; `parameter_range` narrows it by the name."""
_SHARE: Final = Range(Dimension.COUNT, 1e-6, 1, "0.000001 to 1", "0.75")
_OVERHEAD: Final = Range(Dimension.COUNT, 0, 10, "0 to 10", "0.000003")

MEASURED_TIME: Final = Range(Dimension.SECONDS, 1e-12, 86_400, "1e-12 to 86400 (a day)", "0.0123")
"""Of a kernel or a copy in a table, as all below."""
MEASURED_BYTES: Final = Range(Dimension.BYTES, 0, 2**60, "0 to 2^60 (1 EiB)", "4096")
MOVED_BYTES: Final = Range(Dimension.BYTES, 1, 2**60, "1 to 2^60 (1 EiB)", "4096")
"""Of a kernel or a copy."""
MEASURED_BATCH: Final = Range(Dimension.COUNT, 1, 1e9, "1 to 1000000000", "64")
MEASURED_WORK: Final = Range(Dimension.COUNT, 0, 1e24, "0 to 1e24", "1000000")
RUNS: Final = Range(Dimension.COUNT, 0, 1e9, "0 to 1000000000", "20")
SPREAD: Final = Range(Dimension.COUNT, 0, 1e6, "0 to 1000000", "0.01")


def parameter_range(name: str) -> Range:
    """Return the range of a parameter of a cost model, by the suffix of its name."""
    if name.endswith("_s"):
        return _OVERHEAD
    return _SHARE if name.endswith("_fraction") else PARAMETER


@dataclass(frozen=True, slots=True)
class Stated:
    """How a profile states a field.

    Attributes:
        key: of the figure, or of a mapping of figures, in its section.
        words: short description for help texts.
        decides: whether results depend on it, so that a study may vary it.
    """

    key: str
    range: Range
    words: str
    decides: bool = True
