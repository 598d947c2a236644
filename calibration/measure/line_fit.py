"""A straight line through measured times: seconds = latency + bytes / rate, by relative least squares.

Relative, for copies of 4 KiB and of 1 GiB say equally much; absolute errors would leave the small ones out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calibration.measure.statistics import percent
from vdnnsim.units import format_seconds

_FASTEST_BYTES_PER_S = 1e15


@dataclass(frozen=True, slots=True)
class Line:
    """A fitted line.

    Attributes:
        residual: root of the mean squared relative error over the fitted points.
        worst: largest relative error of a point.
    """

    latency_s: float
    bytes_per_s: float
    residual: float
    worst: float

    @property
    def quality(self) -> str:
        """How well the line meets its points, for people."""
        off = f"{percent(self.residual, digits=1)} in the mean and {percent(self.worst)} at worst"
        return f"a line from {format_seconds(self.latency_s)} on that is off by {off}"


def fit_line(points: Sequence[tuple[int, float]]) -> Line:
    """Fit (bytes, seconds); neither the latency nor the time of a byte comes out below zero.

    Minimizes the sum of ((a + b n - t) / t)^2 over points (n, t): with u = 1/t and v = n/t that is the sum of
    (a u + b v - 1)^2, whose normal equations are a Suu + b Suv = Su and a Suv + b Svv = Sv.
    """
    assert points, "a line goes through something"
    u = [1 / seconds for _, seconds in points]
    v = [nbytes / seconds for nbytes, seconds in points]
    suu, svv = math.fsum(x * x for x in u), math.fsum(x * x for x in v)
    suv = math.fsum(x * y for x, y in zip(u, v, strict=True))
    su, sv = math.fsum(u), math.fsum(v)
    determinant = suu * svv - suv * suv
    if determinant > 1e-12 * suu * svv:
        latency_s, byte_s = (su * svv - sv * suv) / determinant, (sv * suu - su * suv) / determinant
    else:  # all of one size
        latency_s, byte_s = 0.0, sv / svv
    if latency_s < 0:
        latency_s, byte_s = 0.0, sv / svv
    elif byte_s < 0:
        latency_s, byte_s = su / suu, 0.0
    byte_s = max(byte_s, 1 / _FASTEST_BYTES_PER_S)
    errors = [abs((latency_s + byte_s * nbytes) / seconds - 1) for nbytes, seconds in points]
    residual = math.sqrt(math.fsum(error * error for error in errors) / len(errors))
    return Line(latency_s, 1 / byte_s, residual, max(errors))
