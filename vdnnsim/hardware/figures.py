"""The figures of a profile: what each may be, how it is read, and how a number is stated as one.

    memory: {value: 12 GiB, origin: datasheet, source: "12288 MB GDDR5"}

A figure without a unit, an origin or a source is refused, so no number of a machine enters vdnnsim without them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from vdnnsim.entry import Entry
from vdnnsim.errors import InputError
from vdnnsim.hardware.server import Figure, Origin
from vdnnsim.messages import LONGEST_SHOWN
from vdnnsim.units import GIB, Dimension, parse_quantity, quantity_text, rounded_quantity

_FIGURE = ("value", "origin", "source")


@dataclass(frozen=True, slots=True)
class Range:
    """What a figure measures, and the least and the largest value that any machine may have."""

    dimension: Dimension
    low: float
    high: float
    shown: str


_MEMORY = Range(Dimension.BYTES, 1, 2**60, "1 B to 1 EiB")
_GRANULE = Range(Dimension.BYTES, 1, GIB, "1 B to 1 GiB")
_RATE = Range(Dimension.BYTES_PER_SECOND, 1, 1e18, "1 B/s to 1e18 B/s")
_PEAK = Range(Dimension.FLOP_PER_SECOND, 1, 1e18, "1 FLOP/s to 1e18 FLOP/s")
_TIME = Range(Dimension.SECONDS, 0, 10, "0 s to 10 s")
_WATTS = Range(Dimension.WATTS, 0, 1e5, "0 W to 100 kW")
_FLOP_ENERGY = Range(Dimension.JOULES_PER_FLOP, 0, 1, "0 J/FLOP to 1 J/FLOP")
_BYTE_ENERGY = Range(Dimension.JOULES_PER_BYTE, 0, 1, "0 J/B to 1 J/B")
_UNITS = Range(Dimension.COUNT, 1, 1e6, "1 to 1000000")
_FRACTION = Range(Dimension.COUNT, 0.001, 1, "0.001 to 1")
_ANY_NUMBER = Range(Dimension.COUNT, 0, 1e18, "0 to 1e18")

_RANGES: Final[Mapping[str, Range]] = {
    "gpu.memory": _MEMORY,
    "gpu.dram_bandwidth": _RATE,
    "gpu.multiprocessors": _UNITS,
    "gpu.granule": _GRANULE,
    "gpu.context": _MEMORY,
    "gpu.handle": _MEMORY,
    "gpu.peak": _PEAK,
    "link.h2d": _RATE,
    "link.d2h": _RATE,
    "link.latency": _TIME,
    "link.peak": _RATE,
    "link.pageable_h2d": _RATE,
    "link.pageable_d2h": _RATE,
    "link.both_directions": _FRACTION,
    "link.beside_compute": _FRACTION,
    "link.beside_memory_bound": _FRACTION,
    "topology.down": _RATE,
    "topology.up": _RATE,
    "topology.latency": _TIME,
    "topology.kept_down": _FRACTION,
    "topology.kept_up": _FRACTION,
    "host.memory": _MEMORY,
    "host.issue": _TIME,
    "host.pin_latency": _TIME,
    "host.pin_bandwidth": _RATE,
    "cost_model": _ANY_NUMBER,
    "power.idle": _WATTS,
    "power.flop": _FLOP_ENERGY,
    "power.dram": _BYTE_ENERGY,
    "power.link": _BYTE_ENERGY,
    "power.limit": _WATTS,
}
"""By key path; of `gpu.peak` and `cost_model`, whose keys are free, for every figure below; of `topology`, whose types
of links have free names, without these."""


def state(path: str, number: float, origin: Origin, source: str) -> Figure:
    """Return a number in SI units as the figure that a profile states it with.

    Args:
        path: key path of the figure, as `link.h2d` or `gpu.peak.float32`.
        number: it is read back as exactly this.
        origin: where it comes from.
        source: how it was measured, or where it was found.
    """
    limits = _range(path)
    assert limits.low <= number <= limits.high, f"{path}: {number} is not from {limits.shown}"
    return Figure(path, quantity_text(number, limits.dimension), origin, source)


def rounded_figure(path: str, number: float, digits: int) -> float:
    """Return the nearest number that a figure states in so many digits, as `7.467 us`.

    Args:
        path: key path of the figure.
        number: in SI units.
        digits: at most, whatever the unit.
    """
    return rounded_quantity(number, _range(path).dimension, digits)


def stated_number(figure: Figure) -> float:
    """Return the number in SI units that a figure states."""
    return parse_quantity(figure.text, _range(figure.path).dimension)


@dataclass
class Figures:
    """Reads figures and keeps them as they are stated, in the order of reading."""

    stated: list[Figure] = field(default_factory=list)

    def whole(self, entry: Entry) -> int:
        """Return a number of bytes, rounded, or a count, which must be whole."""
        number, limits = self.number(entry), _range(entry.path)
        if limits.dimension is Dimension.COUNT and number != int(number):
            raise entry.members(_FIGURE)["value"].expected(f"a whole number from {limits.shown}")
        return round(number)

    def number(self, entry: Entry) -> float:
        """Return a number in SI units within its limits."""
        limits = _range(entry.path)
        members = entry.members(_FIGURE)
        value = members["value"]
        stated = value.value
        if stated is None or isinstance(stated, bool | dict | list):
            raise value.expected(f"a number of {limits.dimension.value} from {limits.shown}")
        if isinstance(stated, str) and len(stated) > LONGEST_SHOWN:
            stated = f"{stated[:LONGEST_SHOWN]}..."
        try:
            number = parse_quantity(stated, limits.dimension)
        except InputError as failure:
            raise value.wrong(str(failure)) from None
        if not limits.low <= number <= limits.high:
            raise value.expected(f"from {limits.shown}")
        origin = members["origin"].choice(Origin, "an origin")
        self.stated.append(Figure(entry.path, str(stated), origin, members["source"].text()))
        return number

    def optional(self, entries: Mapping[str, Entry], key: str) -> float | None:
        """Return the number under a key that may be missing; None then."""
        return self.number(entries[key]) if key in entries else None


def _range(path: str) -> Range:
    section, _, rest = path.partition(".")
    names = (path, path.rpartition(".")[0], f"{section}.{rest.rpartition('.')[2]}")
    return next(_RANGES[name] for name in names if name in _RANGES)
