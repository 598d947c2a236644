"""The fit of a roofline to measured kernels: rates of arithmetic and memory, and an overhead.

    seconds = max(FLOPs s_flop, bytes s_byte) + overhead

The three numbers minimize the mean of |ln(seconds / measured)|, which a few outliers do not move and by which half the
time is as wrong as twice the time. Kernels are bound by arithmetic above some arithmetic intensity (FLOPs per byte) and
by memory below it. So the fit splits them by intensity at several places. From each it solves for the three numbers,
none of them negative, by iteratively reweighted least squares, and lets every kernel change sides; the best result of
all is kept. A rate that binds few kernels can hardly be fitted: two rates must be better by a tenth than one alone, the
other being the peak of the GPU. The fit is deterministic and independent of the order of the kernels.

Sources: the model is that of Williams, Waterman and Patterson, Roofline, Communications of the ACM 52(4), 2009, with an
overhead; the weights are those of Schlossmacher, An iterative technique for absolute deviations curve fitting, Journal
of the American Statistical Association 68, 1973.
Known limitation: no kernel reaches a peak, so kernels bound by a rate that was not fitted are predicted too fast.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

_STARTS: Final = 8
_ROUNDS: Final = 25
_LEAST_ERROR: Final = 1e-6
"""Errors below this weigh the same, so that a kernel that is fitted exactly does not dominate."""
_MOST_KERNELS: Final = 400
_WORTH_A_RATE: Final = 0.9
_SINGULAR: Final = 1e-12


@dataclass(frozen=True, slots=True)
class TimedWork:
    """Work and time of a measured kernel."""

    flop: int
    nbytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """The inverses of two rates, and an overhead."""

    seconds_per_flop: float
    seconds_per_byte: float
    overhead_s: float

    def seconds(self, flop: int, nbytes: int) -> float:
        return max(flop * self.seconds_per_flop, nbytes * self.seconds_per_byte) + self.overhead_s


def fit_roofline(kernels: Sequence[TimedWork], peaks: Roofline) -> Roofline:
    """Return the roofline of at least one measured kernel; peaks of the GPU stand for rates that bind none."""
    chosen = _chosen(kernels)
    places, starts = range(len(chosen)), min(_STARTS, len(chosen))
    alone = [_fit_from(chosen, [in_memory for _ in places], peaks, may_change=False) for in_memory in (True, False)]
    splits = [(2 * start + 1) * len(chosen) // (2 * starts) for start in range(starts)]
    both = [_fit_from(chosen, [place < split for place in places], peaks, may_change=True) for split in splits]
    ranked = [(max(mean_error(each, chosen), _LEAST_ERROR), each) for each in (peaks, *alone)]
    ranked += [(max(mean_error(each, chosen), _LEAST_ERROR) / _WORTH_A_RATE, each) for each in both]
    # Of equals the simplest.
    return min(ranked, key=lambda pair: pair[0])[1]


def mean_error(roofline: Roofline, kernels: Sequence[TimedWork]) -> float:
    """Return the mean of |ln(seconds / measured)| of a roofline over kernels."""
    errors = (abs(math.log(roofline.seconds(each.flop, each.nbytes) / each.seconds)) for each in kernels)
    return sum(errors) / len(kernels)


def _chosen(kernels: Sequence[TimedWork]) -> list[TimedWork]:
    """Return the kernels by rising intensity, at most 400 of them at even distances."""
    by_intensity = sorted(kernels, key=lambda each: (each.flop / max(each.nbytes, 1), each.nbytes, each.seconds))
    step = max(1, -(-len(by_intensity) // _MOST_KERNELS))
    return by_intensity[::step]


def _fit_from(kernels: Sequence[TimedWork], in_memory: list[bool], peaks: Roofline, *, may_change: bool) -> Roofline:
    """Return the roofline that is reached from one initial split into kernels bound by memory and by arithmetic."""
    best, least = peaks, float("inf")
    # Errors are relative to the measured time at first, then to the geometric mean of it and the fitted one, which
    # makes them logarithms.
    scales = [each.seconds for each in kernels]
    weights = [1.0] * len(kernels)
    for _ in range(_ROUNDS):
        roofline = _least_squares(kernels, in_memory, scales, weights, peaks)
        fitted = [roofline.seconds(each.flop, each.nbytes) for each in kernels]
        errors = [abs(math.log(seconds / each.seconds)) for seconds, each in zip(fitted, kernels, strict=True)]
        error = sum(errors) / len(errors)
        if error >= least * (1 - _LEAST_ERROR):
            break
        best, least = roofline, error
        scales = [math.sqrt(seconds * each.seconds) for seconds, each in zip(fitted, kernels, strict=True)]
        weights = [1 / max(each, _LEAST_ERROR) for each in errors]
        if may_change:
            byte_s, flop_s = roofline.seconds_per_byte, roofline.seconds_per_flop
            in_memory = [each.nbytes * byte_s > each.flop * flop_s for each in kernels]
    return best


def _least_squares(
    kernels: Sequence[TimedWork],
    in_memory: Sequence[bool],
    scales: Sequence[float],
    weights: Sequence[float],
    peaks: Roofline,
) -> Roofline:
    """Return the roofline with the least weighted squares of errors, sides, scales and weights being given."""
    # Normal equations: each kernel is a row of a factor for each of the three numbers, 0 for the rate that does not
    # bind it, which should add up to its time.
    flop_flop = flop_start = flop_time = byte_byte = byte_start = byte_time = start_start = start_time = 0.0
    for kernel, by_memory, scale, weight in zip(kernels, in_memory, scales, weights, strict=True):
        start, time = 1 / scale, weight * kernel.seconds / scale
        start_start += weight * start * start
        start_time += time * start
        if by_memory:
            nbytes = kernel.nbytes * start
            byte_byte += weight * nbytes * nbytes
            byte_start += weight * nbytes * start
            byte_time += time * nbytes
        else:
            flop = kernel.flop * start
            flop_flop += weight * flop * flop
            flop_start += weight * flop * start
            flop_time += time * flop
    products = ((flop_flop, 0.0, flop_start), (0.0, byte_byte, byte_start), (flop_start, byte_start, start_start))
    flop_s, byte_s, overhead_s = _nonnegative(products, (flop_time, byte_time, start_time))
    return Roofline(flop_s or peaks.seconds_per_flop, byte_s or peaks.seconds_per_byte, overhead_s)


def _nonnegative(products: Sequence[Sequence[float]], sums: Sequence[float]) -> tuple[float, float, float]:
    """Return the solution of least squares, of which none is negative, by trying which of the three are zero."""
    best, least = (0.0, 0.0, 0.0), 0.0
    for count in (3, 2, 1):
        for among in combinations((index for index in range(3) if products[index][index] > 0), count):
            factors = _solve(
                [[products[row][column] for column in among] for row in among], [sums[row] for row in among]
            )
            if factors is None or min(factors) < 0:
                continue
            # By how much the factors reduce the sum of squares.
            gain = sum(factor * sums[index] for factor, index in zip(factors, among, strict=True))
            if -gain < least:
                found = dict(zip(among, factors, strict=True))
                best, least = (found.get(0, 0.0), found.get(1, 0.0), found.get(2, 0.0)), -gain
        if least < 0:
            break
    return best


def _solve(products: Sequence[Sequence[float]], sums: Sequence[float]) -> list[float] | None:
    """Return the solution of symmetric linear equations; None where they do not have one."""
    scales = [products[index][index] ** 0.5 for index in range(len(sums))]
    rows = [
        [*(value / (scale * other) for value, other in zip(row, scales, strict=True)), total / scale]
        for row, total, scale in zip(products, sums, scales, strict=True)
    ]
    for pivot in range(len(rows)):
        largest = max(range(pivot, len(rows)), key=lambda row: abs(rows[row][pivot]))
        rows[pivot], rows[largest] = rows[largest], rows[pivot]
        if abs(rows[pivot][pivot]) < _SINGULAR:
            return None
        for row in range(len(rows)):
            if row != pivot:
                factor = rows[row][pivot] / rows[pivot][pivot]
                rows[row] = [value - factor * above for value, above in zip(rows[row], rows[pivot], strict=True)]
    return [rows[index][-1] / rows[index][index] / scale for index, scale in enumerate(scales)]
