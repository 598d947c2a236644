"""Measured against simulated as plain data: what `vdnnsim.report.plots.parity` draws."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """One row.

    Attributes:
        group: what it stands with, as `vgg16 (64)`.
        kind: position in `Parity.kinds`.
    """

    group: str
    kind: int
    measured_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class Parity:
    """A slide: durations of all rows, and how far each is off.

    Attributes:
        kinds: what the legend calls each kind of row, two at most.
        tolerance: half the width of the band around equality, as a share of the measured value.
        band: what the legend calls it.
    """

    title: str
    subtitle: str
    pairs: tuple[Pair, ...]
    kinds: tuple[str, ...]
    tolerance: float
    band: str
