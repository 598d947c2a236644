"""Time a piece of work on a stream: warm, often enough, and no longer than it may take.

A GPU works through its queue faster than Python fills it with short kernels, and would then be timed waiting for the
host. So a batch of runs is queued behind a pause that lasts until all of it stands in the queue.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from calibration.devices.port import Device, DeviceStream
from calibration.measure.statistics import Sample, summarize

_BATCH: Final = 10
_STEADY_SPREAD: Final = 0.03
_LONGEST_PAUSE_S: Final = 0.1
# No GPU of today runs faster, so a pause of this many cycles per second lasts at least as long as it should.
_MOST_CYCLES_PER_S: Final = 3e9


@dataclass(frozen=True, slots=True)
class TimeBox:
    """How often a work is run.

    Attributes:
        budget_s: time after which no further batch of runs is begun, once there are `least` runs.
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


def time_work(device: Device, stream: DeviceStream, work: Callable[[], None], box: TimeBox) -> Sample:
    """Return the seconds that a work takes on a stream of a device that does nothing else."""
    bench = _Bench(device, stream, work)
    # Libraries set themselves up in the first run.
    bench.run(1)
    (warm_s,) = bench.run(1)
    if warm_s > max(box.patience_s, box.budget_s):
        return summarize([warm_s])
    samples: list[Sample] = []
    while len(samples) < box.attempts and (not samples or samples[-1].is_refused):
        samples.append(_sample(bench, box, warm_s))
    return min(samples, key=lambda sample: sample.spread)


def _sample(bench: "_Bench", box: TimeBox, warm_s: float) -> Sample:
    seconds: list[float] = []
    start_s = bench.used_s
    while True:
        left_s = box.budget_s - (bench.used_s - start_s)
        affordable = math.floor(left_s / warm_s) if warm_s else box.most
        size = min(_BATCH, box.most - len(seconds), max(affordable, box.least - len(seconds)))
        if size <= 0:
            return summarize(seconds)
        seconds += bench.run(size)
        if len(seconds) >= box.steady and summarize(seconds).spread <= _STEADY_SPREAD:
            return summarize(seconds)


class _Bench:
    """Runs a work in batches.

    Attributes:
        used_s: time that all batches took so far.
    """

    def __init__(self, device: Device, stream: DeviceStream, work: Callable[[], None]) -> None:
        self._device, self._stream, self._work = device, stream, work
        self._queueing_s = 0.0
        self.used_s = 0.0

    def run(self, count: int) -> list[float]:
        """Return the seconds of each of `count` runs."""
        self._device.begin()
        pause(self._device, self._stream, 2 * count * self._queueing_s)
        start_s = self._device.now_s()
        intervals = [self._stream.launch(self._work) for _ in range(count)]
        self._queueing_s = (self._device.now_s() - start_s) / count
        self._device.synchronize([self._stream])
        self.used_s += self._device.now_s()
        return [each.end.time_s - each.start.time_s for each in intervals]


def pause(device: Device, stream: DeviceStream, seconds: float) -> None:
    """Keep a stream of a GPU busy for a while; do nothing on a CPU, whose streams note when a work really starts."""
    if device.torch_device.type == "cuda":
        cycles = round(min(seconds, _LONGEST_PAUSE_S) * _MOST_CYCLES_PER_S)
        # PyTorch's own tests keep a stream busy with it; there is no public way.
        stream.launch(lambda: torch._C._cuda_sleep(cycles))  # noqa: SLF001
