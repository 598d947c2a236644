"""Timing of repeated work on a warm stream within a time budget; sizes and times of calibrations by device type.

A GPU executes short kernels faster than Python queues them, and would be timed waiting for the host. So a batch of runs
is queued behind a pause that lasts until all of it is queued. A queue holds about a thousand launches and then makes
the host wait for the pause to end (forums.developer.nvidia.com, topic 68937); so work of many launches is batched less.

The clocks of an idle GPU and the generation of an idle link rise in use. So work is repeated before it is timed, until
its times no longer change.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch

from calibration.devices.interface import Device, DeviceStream, Interval
from calibration.measure.statistics import Sample, percent, summarize
from vdnnsim.units import GIB, MIB, format_seconds

_BATCH: Final = 10
_STEADY_SPREAD: Final = 0.03
_CLOCK_STEP_S: Final = 0.5e-6
"""Of CUDA's events (cudaEventElapsedTime)."""
_LONGEST_PAUSE_S: Final = 0.1
"""A thousand launches, a full queue, are issued in a fraction of it."""
_PAUSES: Final = 5
"""Retries of a single run with which the host was late."""
# Above the clock of any GPU, so that no pause is too short.
_MOST_CYCLES_PER_S: Final = 3e9
_WARM_UP_BATCH_S: Final = 0.1
_LARGEST_WARM_UP_BATCH: Final = 50

HOST_LATE: Final = "the host was late with its many launches, so the GPU may have waited for it"


@dataclass(frozen=True, slots=True)
class TimeBox:
    """How often a work is run.

    Attributes:
        budget_s: time after which no further batch of runs is begun, once there are `least` runs. Warming up may take
            as long again.
        steady: number of runs that are enough if they spread by 3 % or less.
        attempts: number of samples while the spread is refused; the steadiest counts.
        patience_s: a work that takes longer than this and than the budget is timed by its second run alone.
    """

    budget_s: float
    least: int = 5
    steady: int = 10
    most: int = 50
    attempts: int = 3
    patience_s: float = math.inf

    def runs(self, left_s: float, run_s: float, done: int) -> int:
        """Return the size of the next batch of runs, in the time that is left; 0 when there are enough."""
        affordable = math.floor(left_s / run_s) if run_s else self.most
        return min(_BATCH, self.most - done, max(affordable, self.least - done))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How long a stream is kept busy before anything is timed on it."""

    shortest_s: float
    longest_s: float


def time_work(
    device: Device, stream: DeviceStream, work: Callable[[], None], box: TimeBox, *, is_queued: bool = True
) -> Sample:
    """Return the seconds of a work on a stream of an otherwise idle device.

    The sample has remarks on times that never settled, and on a host that could not keep the device busy. Work that is
    not queued, as copies of pageable memory, blocks the host until it is done, so no pause precedes it.
    """
    bench = _Bench(device, stream, work, is_queued=is_queued)
    bench.set_up()
    (warm_s,) = bench.run(1)
    if warm_s > max(box.patience_s, box.budget_s):
        return summarize([warm_s])
    warm, remark = _warmed_up(bench, box, warm_s)
    samples = [_sample(bench, box, warm_s, warm)]
    while len(samples) < box.attempts and samples[-1].is_refused:
        samples.append(_sample(bench, box, warm_s, []))
    steadiest = min(samples, key=lambda sample: sample.spread)
    remarks = [each for each in (remark, HOST_LATE if bench.host_is_late else "") if each]
    return replace(steadiest, remark="; ".join(remarks), issue_s=bench.issue_s)


def warm_up(device: Device, stream: DeviceStream, work: Callable[[], None], extent: WarmUp) -> str:
    """Keep a stream busy until the times of a work settle; return a remark if they never do."""
    used_s, count, before_s = 0.0, 1, math.inf
    while True:
        device.begin()
        intervals = [stream.launch(work) for _ in range(count)]
        device.synchronize([stream])
        used_s += device.now_s()
        now = summarize([each.duration_s for each in intervals])
        if used_s >= extent.shortest_s and _is_steady(before_s, now):
            return ""
        if used_s >= extent.longest_s and before_s < math.inf:
            return f"still changed from {format_seconds(before_s)} to {format_seconds(now.median)} after {used_s:.1f} s"
        before_s = now.median
        count = min(max(1, math.ceil(_WARM_UP_BATCH_S / max(now.median, _CLOCK_STEP_S))), _LARGEST_WARM_UP_BATCH)


def _is_steady(before_s: float, now: Sample) -> bool:
    """Whether a work takes as long as before: within 3 %, half the spread of its runs, or a step of the clock.

    Where times change evenly over two batches of runs, their medians differ by twice the quartiles of one.
    """
    allowed_s = max(_STEADY_SPREAD, now.spread / 2) * now.median + _CLOCK_STEP_S
    return abs(now.median - before_s) <= allowed_s


def _warmed_up(bench: "_Bench", box: TimeBox, before_s: float) -> tuple[list[float], str]:
    """Return a batch of runs that takes as long as the one before it; if none does, the last one and a remark."""
    start_s, runs, first_s = bench.used_s, 0, before_s
    while True:
        seconds = bench.run(box.runs(box.budget_s, first_s, 0))
        now = summarize(seconds)
        if _is_steady(before_s, now):
            return seconds, ""
        runs += len(seconds)
        if bench.used_s - start_s >= box.budget_s:
            return seconds, f"still changed by {percent(abs(now.median / before_s - 1))} after {runs} runs"
        before_s = now.median


def _sample(bench: "_Bench", box: TimeBox, run_s: float, seconds: list[float]) -> Sample:
    start_s = bench.used_s - sum(seconds)
    while True:
        if len(seconds) >= box.steady and summarize(seconds).spread <= _STEADY_SPREAD:
            return summarize(seconds)
        size = box.runs(box.budget_s - (bench.used_s - start_s), run_s, len(seconds))
        if size <= 0:
            return summarize(seconds)
        seconds = seconds + bench.run(size)


class _Bench:
    """Runs a work in batches.

    Attributes:
        used_s: time of all batches so far.
        host_is_late: whether the host was late with a batch of one run, in spite of the longest pause.
    """

    def __init__(self, device: Device, stream: DeviceStream, work: Callable[[], None], *, is_queued: bool) -> None:
        self._device, self._stream, self._work = device, stream, work
        self._is_queued = is_queued
        self._queueing_s = 0.0
        self._issues_s: list[float] = []
        self._at_once = _BATCH
        self._pauses_left = _PAUSES
        self.used_s = 0.0
        self.host_is_late = False

    @property
    def issue_s(self) -> float:
        """What the host takes to queue one run: the median of batches for which the queue had room, if any had."""
        return statistics.median(self._issues_s or [self._queueing_s])

    def set_up(self) -> None:
        """Run it once: libraries are set up in the first run."""
        self._batch(1)
        self._issues_s.clear()

    def run(self, count: int) -> list[float]:
        """Return the seconds of each of some runs, in batches that do not make the device wait."""
        seconds: list[float] = []
        while len(seconds) < count:
            size = min(count - len(seconds), self._at_once)
            batch, is_late = self._batch(size)
            if is_late and size > 1:
                self._at_once = size // 2
                continue
            if is_late and self._pauses_left:
                self._pauses_left -= 1
                continue
            self.host_is_late |= is_late
            seconds += batch
        return seconds

    def _batch(self, count: int) -> tuple[list[float], bool]:
        """Return the seconds of each of `count` runs, and whether the pause before them was too short."""
        self._device.begin()
        paused = pause(self._device, self._stream, 2 * count * self._queueing_s) if self._is_queued else None
        start_s = self._device.now_s()
        intervals = [self._stream.launch(self._work) for _ in range(count)]
        queued_s = self._device.now_s()
        self._queueing_s = (queued_s - start_s) / count
        self._device.synchronize([self._stream])
        self.used_s += self._device.now_s()
        is_late = paused is not None and paused.end.time_s < queued_s
        if not is_late:
            self._issues_s.append(self._queueing_s)
        return [each.duration_s for each in intervals], is_late


def pause(device: Device, stream: DeviceStream, seconds: float) -> Interval | None:
    """Keep a stream of a GPU busy for a while; do nothing on a CPU, whose streams mark the real start of a work."""
    if device.torch_device.type != "cuda":
        return None
    cycles = round(min(seconds, _LONGEST_PAUSE_S) * _MOST_CYCLES_PER_S)
    # As in PyTorch's own tests; there is no public way.
    return stream.launch(lambda: torch._C._cuda_sleep(cycles))  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Extent:
    """Sizes and times of a calibration.

    Attributes:
        largest_copy: bytes of the largest copy; copies beside other work have a sixteenth of it.
        largest_pin: bytes of the largest block whose pinning is timed.
        product_side: rows and columns of the matrices of the product that measures the arithmetic rate.
        stream_bytes: read by the kernel that measures the bandwidth of device memory.
        copies: runs of a copy and of the two kernels above.
        kernels_s: time of the kernels of all shapes, equally shared. Slow ones take longer, since each is run a few
            times.
        window_s: least time for which work runs beside other work.
        warm_up: before others are timed, on the compute stream twice and in each direction of the link once.
    """

    largest_copy: int
    largest_pin: int
    product_side: int
    stream_bytes: int
    copies: TimeBox
    kernels_s: float
    window_s: float
    warm_up: WarmUp


GPU_EXTENT: Final = Extent(
    largest_copy=GIB,
    largest_pin=256 * MIB,
    product_side=8192,
    stream_bytes=GIB,
    copies=TimeBox(budget_s=0.3),
    kernels_s=180.0,
    window_s=0.05,
    # Assumed: how fast clocks and links rise was not measured.
    warm_up=WarmUp(shortest_s=0.5, longest_s=3.0),
)
CPU_EXTENT: Final = Extent(
    largest_copy=64 * MIB,
    largest_pin=64 * MIB,
    product_side=512,
    stream_bytes=64 * MIB,
    copies=TimeBox(budget_s=0.1),
    kernels_s=6.0,
    window_s=0.05,
    warm_up=WarmUp(shortest_s=0.05, longest_s=0.5),
)


def extent_of(device_type: str) -> Extent:
    """Return sizes and times for a device type, `cpu` or `cuda`."""
    return GPU_EXTENT if device_type == "cuda" else CPU_EXTENT
