"""Units and decimals shared by all numbers of a column or an axis, percentages, and rates as text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import floor, log10

from vdnnsim.dnn.samples import Sample
from vdnnsim.units import GIB, KIB, MIB, Dimension, dimension_of, format_rate


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit, its factor in SI, and the decimals of numbers in it."""

    unit: str
    factor: float
    decimals: int

    def number(self, value: float) -> str:
        """Return a value without the unit: `6.64`."""
        return f"{value / self.factor:.{self.decimals}f}"

    def with_digits(self, values: Iterable[float], digits: int = 3) -> "Scale":
        """Return the scale with enough decimals to give each of these values so many digits; bytes have none."""
        if self.unit == "B":
            return self
        least = min((abs(value) / self.factor for value in values if value), default=1.0)
        return replace(self, decimals=max(self.decimals, digits - 1 - floor(log10(least))))

    def text(self, value: float) -> str:
        """Return a value with the unit: `6.64 GiB`."""
        return f"{self.number(value)} {self.unit}"


def byte_scale(values: Iterable[float]) -> Scale:
    return _scale(values, (("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1)))


def time_scale(values: Iterable[float]) -> Scale:
    return _scale(values, (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)))


def rate_of_bytes_scale(values: Iterable[float]) -> Scale:
    """Return the scale for bandwidths in bytes per second, in decimal units."""
    return _scale(values, (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)))


def scale_of(name: str, values: Iterable[float]) -> Scale:
    """Return the scale for a column, by the unit in which its name ends."""
    if name.endswith("_ratio"):
        return Scale("%", 0.01, 0)
    match dimension_of(name):
        case Dimension.BYTES:
            return byte_scale(values)
        case Dimension.SECONDS:
            return time_scale(values)
        case Dimension.BYTES_PER_SECOND:
            return rate_of_bytes_scale(values)
        case Dimension.FLOP_PER_SECOND:
            return Scale("TFLOP/s", 1e12, 1)
        case _:
            return _scale(values, (("", 1.0),))


def percents(fractions: Iterable[float]) -> tuple[str, ...]:
    """Return percentages with enough decimals for three digits of each."""
    values = tuple(fractions)
    scale = Scale("%", 0.01, 1).with_digits(values)
    return tuple(percent(value, scale.decimals) for value in values)


def percent(fraction: float, decimals: int = 1) -> str:
    """Return a fraction in percent: `95.6 %`; one below 1 never reads as 100 %."""
    number = f"{100 * fraction:.{decimals}f}"
    if float(number) == 100 and fraction < 1 - 1e-9:
        number = f"{100 - 10**-decimals:.{decimals}f}"
    return f"{number} %"


def _scale(values: Iterable[float], units: tuple[tuple[str, float], ...]) -> Scale:
    largest = max((abs(value) for value in values), default=0.0)
    unit, factor = next((each for each in units if largest >= each[1]), units[-1])
    if factor == 1 and unit == "B":
        return Scale(unit, factor, 0)
    shown = largest / factor
    return Scale(unit, factor, 0 if shown >= 1000 else 1 if shown >= 100 else 2)


def per_second(sample: Sample) -> str:
    """Return the unit of throughput: `images/s`."""
    return f"{sample.names}/s"


def rate_cells(rates: Sequence[float | None]) -> list[str]:
    """Return the rates of a column with equal decimals and at least four digits; empty for None."""
    known = [rate for rate in rates if rate is not None]
    scale = scale_of("samples_per_s", known).with_digits(known, digits=4)
    return ["" if rate is None else scale.number(rate) for rate in rates]


def rate_text(sample: Sample, samples_per_s: float) -> str:
    """Return a rate with its units: `1569 images/s`, `38 sequences/s, 38912 tokens/s`."""
    rate = f"{format_rate(samples_per_s)} {per_second(sample)}"
    return f"{rate}, {format_rate(sample.steps * samples_per_s)} {sample.step}s/s" if sample.step else rate
