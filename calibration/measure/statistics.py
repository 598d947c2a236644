"""Median, spread and count of several runs of one quantity."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WARNED_SPREAD: Final = 0.10
REFUSED_SPREAD: Final = 0.25
"""A spread above the first is a warning; above the second it is not used as a measurement."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured quantity.

    Attributes:
        median: in the unit of what was measured.
        spread: (third quartile - first quartile) / median, robust to outliers.
        remark: on the runs; mostly empty.
        issue_s: what the host took to queue one run; 0 where that was not measured.
    """

    median: float
    spread: float
    count: int
    remark: str = ""
    issue_s: float = 0.0

    @property
    def is_refused(self) -> bool:
        """Whether the spread is too large for the sample to be used."""
        return self.spread > REFUSED_SPREAD

    @property
    def runs(self) -> str:
        """The source of the quantity: `median of 12 runs, spread 3 %`."""
        found = f"median of {self.count} runs, spread {percent(self.spread)}" if self.count > 1 else "one run"
        return f"{found}; {self.remark}" if self.remark else found


def percent(fraction: float, digits: int = 0) -> str:
    """Return a fraction as text: `12 %`."""
    return f"{100 * fraction:.{digits}f} %"


def summarize(values: Sequence[float]) -> Sample:
    """Return median, spread and count; quartiles are interpolated between the values, the extremes included."""
    middle = statistics.median(values)
    if len(values) == 1 or middle == 0:
        return Sample(middle, 0.0, len(values))
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return Sample(middle, (third - first) / middle, len(values))
