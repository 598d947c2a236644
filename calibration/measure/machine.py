"""Figures of a profile from the measurements of a machine, each with its source.

Times of copies are fitted by a line, seconds = latency + bytes / rate, by relative least squares: copies of 4 KiB and
of 1 GiB count equally, where absolute errors would ignore the small ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls

from calibration.devices.interface import Device
from calibration.measure.device_rates import DeviceRates
from calibration.measure.host_costs import HostCosts, host_memory_bytes
from calibration.measure.link_times import MATRIX_PRODUCT, MEMORY_STREAM, MORE_STREAMS, OTHER_DIRECTION, TimedCopy
from calibration.measure.statistics import REFUSED_SPREAD, Sample, percent
from vdnnsim.errors import DeviceError
from vdnnsim.hardware.copies import Direction, HostMemory
from vdnnsim.hardware.figures import rounded_figure, state
from vdnnsim.hardware.server import Figure, Gpu, Host, Link, Origin
from vdnnsim.units import format_bytes, format_seconds

_FEWEST_POINTS = 2
_LEAST_FRACTION = 0.001
_FASTEST_BYTES_PER_S = 1e15


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of a machine but its kernels."""

    rates: DeviceRates
    link: tuple[TimedCopy, ...]
    host: HostCosts


@dataclass(frozen=True, slots=True)
class MeasuredMachine:
    """The figures of a profile but its kernels."""

    gpu: Gpu
    link: Link
    host: Host
    figures: tuple[Figure, ...]


def machine_of(
    device: Device, measurements: Measurements, link_name: str, *, is_pretended: bool = False
) -> MeasuredMachine:
    """Return the figures of a device; those of a pretended GPU, which were set, are assumed.

    Raises:
        DeviceError: on a GPU, a required figure spreads too much.
    """
    figures = _Figures(strict=device.torch_device.type == "cuda", is_pretended=is_pretended)
    gpu = _gpu(device, measurements.rates, figures)
    link = _link(link_name, measurements.link, figures)
    host = _host(measurements.host, figures)
    return MeasuredMachine(gpu, link, host, tuple(figures.stated))


class _Figures:
    """Collects figures as they are stated.

    Args:
        strict: whether a required figure that spreads too much is refused; on a CPU it is used, and its source has the
            spread.
        is_pretended: whether the figures were set.
    """

    def __init__(self, *, strict: bool, is_pretended: bool) -> None:
        self._strict, self._is_pretended = strict, is_pretended
        self.stated: list[Figure] = []

    def state(self, path: str, number: float, source: str) -> float:
        """State a figure, rounded to its digits; return the rounded number."""
        rounded = rounded_figure(path, number)
        if self._is_pretended:
            self.stated.append(state(path, rounded, Origin.ASSUMED, f"on a pretended GPU: {source}"))
        else:
            self.stated.append(state(path, rounded, Origin.MEASURED, source))
        return rounded

    def whole(self, path: str, number: int, source: str) -> int:
        """State a whole number."""
        return round(self.state(path, number, source))

    def seconds(self, path: str, sample: Sample) -> float:
        if sample.is_refused and self._strict:
            raise DeviceError(
                f"{path}: {sample.runs}, expected at most {percent(REFUSED_SPREAD)}; run the same command again while "
                "nothing else uses the machine"
            )
        return sample.median

    def points(self, path: str, samples: Sequence[tuple[int, Sample]]) -> list[tuple[int, float]]:
        """Return (bytes, seconds) of the steady samples; of all, where too few are steady."""
        steady = [(nbytes, sample) for nbytes, sample in samples if not sample.is_refused]
        if len(steady) < min(_FEWEST_POINTS, len(samples)):
            steady = list(samples)
        return [(nbytes, self.seconds(path, sample)) for nbytes, sample in steady]


def _gpu(device: Device, rates: DeviceRates, figures: _Figures) -> Gpu:
    is_gpu = device.torch_device.type == "cuda"
    product, stream = rates.product, rates.stream
    bandwidth = stream.amount / figures.seconds("gpu.dram_bandwidth", stream.sample)
    peak = f"gpu.peak.{rates.element_type.value}"
    flop_per_s = product.amount / figures.seconds(peak, product.sample)
    processors, counted = torch.get_num_threads(), "threads that compute kernels"
    if is_gpu:
        processors = torch.cuda.get_device_properties(device.torch_device).multi_processor_count
        counted = "the number that the device reports"
    context_bytes = device.context_bytes()
    used = (
        "used memory by the driver less what PyTorch reserved, before the kernels of networks are loaded; no other "
        "process was seen on the GPU"
    )
    streamed = f"{stream.text}, {stream.sample.runs}, bytes read and written"
    rounded = "unit to which PyTorch's allocator rounds a request"
    return Gpu(
        name=device.name,
        memory_bytes=figures.whole("gpu.memory", device.memory_bytes, "the capacity that the device reports"),
        flop_per_s={rates.element_type: figures.state(peak, flop_per_s, f"{product.text}, {product.sample.runs}")},
        dram_bytes_per_s=figures.state("gpu.dram_bandwidth", bandwidth, streamed),
        multiprocessors=figures.whole("gpu.multiprocessors", processors, counted),
        granule_bytes=figures.whole("gpu.granule", device.granule_bytes, rounded),
        context_bytes=0 if context_bytes is None else figures.whole("gpu.context", context_bytes, used),
    )


def _link(name: str, times: Sequence[TimedCopy], figures: _Figures) -> Link:
    lines = {
        (direction, memory): fit_line(_points(times, direction, memory, figures))
        for direction in Direction
        for memory in HostMemory
    }
    # A profile has one latency for both directions. The rates are not refitted: large copies hardly depend on it.
    latencies = {direction.value: lines[direction, HostMemory.PINNED].latency_s for direction in Direction}
    latency_s = sum(latencies.values()) / len(latencies)
    each = ", ".join(f"{direction} {format_seconds(seconds)}" for direction, seconds in latencies.items())

    def rate(direction: Direction, memory: HostMemory) -> float:
        line = lines[direction, memory]
        sizes = [nbytes for nbytes, _ in _points(times, direction, memory, figures)]
        source = f"{memory.value} copies of {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}, {line.quality}"
        together = _more_streams(times, direction) if memory is HostMemory.PINNED else ""
        return figures.state(_path(direction, memory), line.bytes_per_s, source + together)

    return Link(
        name=name,
        h2d_bytes_per_s=rate(Direction.H2D, HostMemory.PINNED),
        d2h_bytes_per_s=rate(Direction.D2H, HostMemory.PINNED),
        latency_s=figures.state("link.latency", latency_s, f"mean of the lines through pinned copies: {each}"),
        pageable_h2d_bytes_per_s=rate(Direction.H2D, HostMemory.PAGEABLE),
        pageable_d2h_bytes_per_s=rate(Direction.D2H, HostMemory.PAGEABLE),
        both_directions_fraction=_fraction("link.both_directions", times, OTHER_DIRECTION, figures),
        beside_compute_fraction=_fraction("link.beside_compute", times, MATRIX_PRODUCT, figures),
        beside_memory_bound_fraction=_fraction("link.beside_memory_bound", times, MEMORY_STREAM, figures),
    )


def _more_streams(times: Sequence[TimedCopy], direction: Direction) -> str:
    """Return text on what several streams in one direction carry together."""
    together = [
        f"{count + 1} streams at once carry {(count + 1) * each.kept:.2f} times as much"
        for count, other in MORE_STREAMS.items()
        for each in times
        if each.direction is direction and each.beside == other
    ]
    return "".join(f"; {text}" for text in together)


def _fraction(path: str, times: Sequence[TimedCopy], other: str, figures: _Figures) -> float | None:
    found = [each for each in times if each.beside == other]
    if not found:
        return None
    kept = sum(each.kept for each in found) / len(found)
    texts = (
        f"{each.direction.value} {percent(each.kept)} beside {other}, which keeps {percent(each.other_kept)} itself"
        for each in found
    )
    source = f"pinned copies of {format_bytes(found[0].nbytes)}: {'; '.join(texts)}"
    # A copy may be measured a little faster than alone.
    return figures.state(path, min(1.0, max(_LEAST_FRACTION, kept)), source)


def _host(costs: HostCosts, figures: _Figures) -> Host:
    line = fit_line(figures.points("host.pin_bandwidth", costs.pinning))
    reported = "what the operating system reports; all may be pinned"
    sizes = f"blocks of {format_bytes(costs.pinning[0][0])} to {format_bytes(costs.pinning[-1][0])}"

    def hundred(path: str, sample: Sample) -> float:
        return figures.state(path, figures.seconds(path, sample), f"{sample.runs}, each a hundred in turn")

    return Host(
        memory_bytes=figures.whole("host.memory", host_memory_bytes(), reported),
        issue_s=hundred("host.issue", costs.kernel),
        pin_latency_s=figures.state("host.pin_latency", line.latency_s, f"{sizes}, {line.quality}"),
        pin_bytes_per_s=figures.state("host.pin_bandwidth", line.bytes_per_s, f"{sizes}, {line.quality}"),
        issue_copy_s=hundred("host.issue_copy", costs.copy),
        issue_event_s=hundred("host.issue_event", costs.mark),
        allocation_s=hundred("host.allocation", costs.allocation),
    )


def _points(
    times: Sequence[TimedCopy], direction: Direction, memory: HostMemory, figures: _Figures
) -> list[tuple[int, float]]:
    samples = [
        (each.nbytes, each.sample)
        for each in times
        if (each.direction, each.host_memory, each.beside) == (direction, memory, "")
    ]
    return figures.points(_path(direction, memory), samples)


def _path(direction: Direction, memory: HostMemory) -> str:
    return f"link.{'pageable_' if memory is HostMemory.PAGEABLE else ''}{direction.value}"


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
        off = f"{percent(self.residual, digits=1)} in the mean and {percent(self.worst)} at worst"
        return f"a line from {format_seconds(self.latency_s)} on that is off by {off}"


def fit_line(points: Sequence[tuple[int, float]]) -> Line:
    """Fit (bytes, seconds) by a latency and a time per byte, neither of which is negative.

    Minimizes the sum of ((a + b n - t) / t)^2 over points (n, t), of one size with a = 0.
    """
    nbytes, seconds = np.array(points, dtype=float).T
    terms = np.stack((1 / seconds, nbytes / seconds), axis=1)
    # Latencies are nanoseconds where sizes are gigabytes: columns of one length are fitted.
    lengths = np.linalg.norm(terms, axis=0)
    fitted = terms / lengths * [nbytes.min() < nbytes.max(), 1]
    latency_s, byte_s = nnls(fitted, np.ones(len(points)))[0] / lengths
    byte_s = max(float(byte_s), 1 / _FASTEST_BYTES_PER_S)
    errors = np.abs(terms @ (latency_s, byte_s) - 1)
    return Line(float(latency_s), 1 / byte_s, float(np.sqrt(np.mean(errors**2))), float(errors.max()))
