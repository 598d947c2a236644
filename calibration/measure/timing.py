"""Timing of work on a stream: warm, often enough, within a budget of time; how much is measured by kind of device.

A GPU works through its queue faster than Python fills it with short kernels, and would then be timed waiting for the
host. So a batch of runs is queued behind a pause that lasts until all of it stands in the queue. A queue takes about a
thousand launches and then makes the host wait until the pause is over (forums.developer.nvidia.com, topic 68937); so
whoever launches many kernels at each run is run fewer times in a batch.

Clocks of an idle GPU and the generation of an idle link rise as they are used. So what is timed first runs until its
times no longer change.
"""

import math
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
"""That of CUDA's events (cudaEventElapsedTime)."""
_LONGEST_PAUSE_S: Final = 0.1
"""A thousand launches, all that a queue takes, are issued in a fraction of it."""
_PAUSES: Final = 5
"""How often a single run is tried again that the host was late with, before it counts."""
# No GPU of today runs faster, so a pause of this many cycles per second lasts at least as long as it should.
_MOST_CYCLES_PER_S: Final = 3e9
_WARM_UP_BATCH_S: Final = 0.1
_LARGEST_WARM_UP_BATCH: Final = 50

HOST_LATE: Final = "the host was late with its many launches, so the GPU may have waited for it"


@dataclass(frozen=True, slots=True)
class TimeBox:
    """How often a work is run.

    Attributes:
        budget_s: time after which no further batch of runs is begun, once there are `least` runs. Runs that only warm
            up may take as long again.
        least, most: number of runs.
        steady: number of runs after which no more are made if they spread by 3 % or less.
        attempts: how often all of it is done as long as the spread is refused; the steadiest counts.
        patience_s: of a work that takes longer than this and than the budget, the second run is the one that counts.
    """

    budget_s: float
    least: int = 5
    steady: int = 10
    most: int = 50
    attempts: int = 3
    patience_s: float = math.inf

    def runs(self, left_s: float, run_s: float, done: int) -> int:
        """Return how many more runs are made at once, in the time that is left; none when there are enough."""
        affordable = math.floor(left_s / run_s) if run_s else self.most
        return min(_BATCH, self.most - done, max(affordable, self.least - done))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How long a stream is kept busy before anything is timed on it, whatever a work takes."""

    shortest_s: float
    longest_s: float


def time_work(
    device: Device, stream: DeviceStream, work: Callable[[], None], box: TimeBox, *, is_queued: bool = True
) -> Sample:
    """Return the seconds that a work takes on a stream of a device that does nothing else.

    The sample remarks on times that never stopped changing, and on a host that could not keep the device busy. What is
    not queued, as copies of pageable memory, holds the host until it is done, and so no pause is to come before it.
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
    return replace(steadiest, remark="; ".join(remarks))


def warm_up(device: Device, stream: DeviceStream, work: Callable[[], None], extent: WarmUp) -> str:
    """Keep a stream busy until a work takes as long as just before; return what is to be said if it never did."""
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
    """Whether a work takes as long as it did before: to 3 %, to half of what its runs spread, to a step of the clock.

    Where times change evenly over two batches of runs, their medians lie twice as far apart as the quartiles of one.
    """
    allowed_s = max(_STEADY_SPREAD, now.spread / 2) * now.median + _CLOCK_STEP_S
    return abs(now.median - before_s) <= allowed_s


def _warmed_up(bench: "_Bench", box: TimeBox, before_s: float) -> tuple[list[float], str]:
    """Return a batch of runs that takes as long as what ran before it; if none ever does, the last one and a remark."""
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
        used_s: time that all batches took so far.
        host_is_late: whether the host was late with a batch of one run, however long the pause before it.
    """

    def __init__(self, device: Device, stream: DeviceStream, work: Callable[[], None], *, is_queued: bool) -> None:
        self._device, self._stream, self._work = device, stream, work
        self._is_queued = is_queued
        self._queueing_s = 0.0
        self._at_once = _BATCH
        self._pauses_left = _PAUSES
        self.used_s = 0.0
        self.host_is_late = False

    def set_up(self) -> None:
        """Run it once: libraries set themselves up in the first run."""
        self._batch(1)

    def run(self, count: int) -> list[float]:
        """Return the seconds of each of some runs, in as many batches as it takes not to make the device wait."""
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
        return [each.duration_s for each in intervals], is_late


def pause(device: Device, stream: DeviceStream, seconds: float) -> Interval | None:
    """Keep a stream of a GPU busy for a while; do nothing on a CPU, whose streams note when a work really starts."""
    if device.torch_device.type != "cuda":
        return None
    cycles = round(min(seconds, _LONGEST_PAUSE_S) * _MOST_CYCLES_PER_S)
    # PyTorch's own tests keep a stream busy with it; there is no public way.
    return stream.launch(lambda: torch._C._cuda_sleep(cycles))  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Extent:
    """Sizes and times of a calibration.

    Attributes:
        largest_copy: bytes of the largest copy; copies beside other work have a sixteenth of it.
        largest_pin: bytes of the largest block that is pinned for the sake of timing that.
        product_side: rows and columns of the matrices whose product shows the arithmetic rate.
        stream_bytes: what the kernel reads that shows the bandwidth of device memory.
        copies: how often a copy is run; also the two kernels above.
        kernels_s: what the kernels of all shapes together may take, which each shape has an equal share of. Slow ones
            take longer, for each is run a few times.
        window_s: how long work runs beside other work, at least.
        warm_up: how long a large work is repeated before others are timed, on the compute stream twice and in each
            direction of the link once.
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
    # Assumed of clocks and links: how fast they rise nobody measured here.
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
    """Return how much is measured on a kind of device, which goes by PyTorch's word: `cpu` or `cuda`."""
    return GPU_EXTENT if device_type == "cuda" else CPU_EXTENT
