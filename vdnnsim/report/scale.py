"""One unit for all numbers of a column or an axis, so that they can be compared at a glance."""

from collections.abc import Iterable
from dataclasses import dataclass

from vdnnsim.units import GIB, KIB, MIB


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit and how to write numbers in it.

    Attributes:
        factor: the unit in SI.
        decimals: digits after the point, the same for all numbers.
    """

    unit: str
    factor: float
    decimals: int

    def number(self, value: float) -> str:
        """Return a value in this unit, without the unit: `6.64`."""
        return f"{value / self.factor:.{self.decimals}f}"

    def text(self, value: float) -> str:
        """Return a value with the unit: `6.64 GiB`."""
        return f"{self.number(value)} {self.unit}"


def byte_scale(values: Iterable[float]) -> Scale:
    """Return the scale for sizes in bytes, by the largest of them."""
    return _scale(values, (("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1)))


def time_scale(values: Iterable[float]) -> Scale:
    """Return the scale for durations in seconds, by the longest of them."""
    return _scale(values, (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)))


def rate_of_bytes_scale(values: Iterable[float]) -> Scale:
    """Return the scale for bandwidths in bytes per second, in decimal units as links are sold."""
    return _scale(values, (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)))


def rate_scale(values: Iterable[float]) -> Scale:
    """Return the scale for plain numbers such as images per second."""
    return _scale(values, (("", 1.0),))


def percent(fraction: float) -> str:
    """Return a fraction for people: `95.6 %`; what is not all of it never reads as 100 %."""
    text = f"{100 * fraction:.1f} %"
    return "99.9 %" if text == "100.0 %" and fraction < 1 - 1e-9 else text


def _scale(values: Iterable[float], units: tuple[tuple[str, float], ...]) -> Scale:
    largest = max((abs(value) for value in values), default=0.0)
    unit, factor = next((each for each in units if largest >= each[1]), units[-1])
    if factor == 1 and unit == "B":
        return Scale(unit, factor, 0)
    shown = largest / factor
    return Scale(unit, factor, 0 if shown >= 1000 else 1 if shown >= 100 else 2)
