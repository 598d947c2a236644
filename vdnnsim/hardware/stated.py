"""How a profile states a number of a machine: the one place where a figure is defined.

    memory_bytes: Annotated[int, Stated("memory", MEMORY, "that the pool may hand out")]

makes the field `memory_bytes` of `vdnnsim.hardware.server.Gpu` the figure `gpu.memory`. What reads, writes, varies and
explains figures derives all that it knows from these annotations (`vdnnsim.hardware.figures`). A field with a default
may be left out of a file, and one of type int is whole.
"""

from dataclasses import dataclass
from typing import Final

from vdnnsim.units import GIB, Dimension


@dataclass(frozen=True, slots=True)
class Range:
    """What a figure measures, the least and the largest value that any machine may have, and one as people write it."""

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
FRACTION: Final = Range(Dimension.COUNT, 0.001, 1, "0.001 to 1", "0.9")
ANY_NUMBER: Final = Range(Dimension.COUNT, 0, 1e18, "0 to 1e18", "0.75")


@dataclass(frozen=True, slots=True)
class Stated:
    """How a profile states a field.

    Attributes:
        key: under which the figure stands in its section; of a mapping the key below which its figures stand.
        range: what it may be.
        words: what it is, for people, as a line of the help has room for.
        decides: whether a result of the simulator depends on it, so that a study may vary it.
    """

    key: str
    range: Range
    words: str
    decides: bool = True
