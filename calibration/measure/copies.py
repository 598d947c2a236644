"""Time copies between host and device, alone and beside other work.

Beside other work counts only what ran while the other was running from its first moment to its last.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import torch

from calibration.devices.port import Device, DeviceStream, Interval
from calibration.measure.statistics import Sample, summarize
from calibration.measure.timing import TimeBox, time_work
from vdnnsim.hardware.copies import Direction, HostMemory
from vdnnsim.units import KIB

_FEWEST_TOGETHER: Final = 3
_LONGEST_TOGETHER: Final = 400
_MOST_PLACES: Final = 1000


class Copy:
    """A copy between two large blocks, each time at the next of many places, so that a cache hardly knows it.

    Args:
        direction: which way.
        host_memory: what kind of block that of the host is.
        nbytes: how much; the blocks hold it several times.
        host: flat bytes.
        on_device: flat bytes, as many.
        place: where the first copy goes.
    """

    def __init__(
        self,
        direction: Direction,
        host_memory: HostMemory,
        nbytes: int,
        host: torch.Tensor,
        on_device: torch.Tensor,
        *,
        place: int = 0,
    ) -> None:
        self.direction, self.host_memory, self.nbytes = direction, host_memory, nbytes
        places = min(len(host) // nbytes, _MOST_PLACES)
        begins = [(place + number) % places * nbytes for number in range(places)]
        target, source = (on_device, host) if direction is Direction.H2D else (host, on_device)
        # Cut beforehand: a view takes Python longer than some copies take.
        self._pairs = cycle([(target[begin : begin + nbytes], source[begin : begin + nbytes]) for begin in begins])

    def run(self) -> None:
        """Do it, or on a GPU queue it."""
        target, source = next(self._pairs)
        target.copy_(source, non_blocking=True)


def copy_sizes(largest: int) -> tuple[int, ...]:
    """Return sizes from 4 KiB to the largest, each four times the one before."""
    sizes = [4 * KIB]
    while sizes[-1] < largest:
        sizes.append(min(4 * sizes[-1], largest))
    return tuple(sizes)


def time_copy(device: Device, copy: Copy, box: TimeBox) -> Sample:
    """Return the seconds of a copy on the memory stream of a device that does nothing else."""
    is_queued = copy.host_memory is HostMemory.PINNED
    return time_work(device, device.memory, copy.run, box, is_queued=is_queued)


@dataclass(frozen=True, slots=True)
class Load:
    """A work that a stream repeats, and what it takes alone."""

    stream: DeviceStream
    work: Callable[[], None]
    alone_s: float


def time_concurrently(device: Device, loads: Sequence[Load], *, window_s: float) -> tuple[Sample, ...]:
    """Return the seconds that each of several loads takes while the others run.

    Args:
        device: does nothing but the loads.
        loads: each on a stream of its own.
        window_s: how long they are to run beside each other, by their times alone.

    Returns:
        Nothing where they did not run beside each other often enough, or the runs of one lie too far apart.
    """
    for attempt in range(3):
        longest_s = window_s * 2**attempt
        device.begin()
        intervals: list[list[Interval]] = [[] for _ in loads]
        counts = [min(_LONGEST_TOGETHER, math.ceil(longest_s / load.alone_s)) for load in loads]
        # In turns, so that no stream stands empty while the queue of another is filled.
        for turn in range(max(counts)):
            for load, count, queued in zip(loads, counts, intervals, strict=True):
                if turn < count:
                    queued.append(load.stream.launch(load.work))
        device.synchronize([load.stream for load in loads])
        samples = [
            summarize(seconds)
            for index in range(len(loads))
            if len(seconds := _covered(intervals, index)) >= _FEWEST_TOGETHER
        ]
        if len(samples) == len(loads) and not any(sample.is_refused for sample in samples):
            return tuple(samples)
    return ()


def _covered(intervals: Sequence[Sequence[Interval]], index: int) -> list[float]:
    """Return the seconds of the runs of one load that lie inside the time of every other."""
    others = [queued for number, queued in enumerate(intervals) if number != index]
    start_s = max(queued[0].start.time_s for queued in others)
    end_s = min(queued[-1].end.time_s for queued in others)
    return [
        each.end.time_s - each.start.time_s
        for each in intervals[index]
        if each.start.time_s >= start_s and each.end.time_s <= end_s
    ]
