"""The paced mode: total times by hand, on a clock of each thread's own; the clock of the machine undercuts no pace."""

import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from calibration.devices.cpu import CpuDevice
from calibration.devices.worker import HostClock


class ThreadClock(HostClock):
    """Shows each thread a time of its own, from zero on, which goes on by what the thread waits for."""

    def __init__(self, late_s: float = 0.0) -> None:
        """Wake up so much later than was asked for."""
        self._threads = threading.local()
        self._late_s = late_s
        super().__init__()

    def moment_s(self) -> float:
        return getattr(self._threads, "now_s", 0.0)

    def wait_until(self, moment_s: float) -> None:
        self._threads.now_s = max(self.moment_s(), moment_s + self._late_s)


def nothing() -> None:
    pass


def total_s(device: CpuDevice, give: Callable[[CpuDevice], None]) -> float:
    """When both streams have done what they are given."""
    device.begin()
    give(device)
    streams = [device.compute, device.memory]
    ends = [stream.mark() for stream in streams]
    device.synchronize(streams)
    return max(end.time_s for end in ends)


def overlapping(device: CpuDevice) -> None:
    """10 works of 10 ms on one stream hide 10 of 9 ms on the other: 100 ms, not 190."""
    for _ in range(10):
        device.compute.launch(nothing, lasts_s=0.010)
        device.memory.launch(nothing, lasts_s=0.009)


def waiting(device: CpuDevice) -> None:
    """6 times 4 ms, then a copy of 12 ms that begins when they end and that the next one waits for: 6 x 16 = 96 ms."""
    for _ in range(6):
        device.compute.launch(nothing, lasts_s=0.004)
        device.memory.wait(device.compute.mark())
        device.memory.launch(nothing, lasts_s=0.012)
        device.compute.wait(device.memory.mark())


def copying_ahead(device: CpuDevice) -> None:
    """Layer n computes 6 ms while the map of layer n - 1 is copied, 10 ms; both streams meet at its end.

    The first layer has nothing to copy: 6 ms. Each of the 8 others takes the longer of both, 10 ms. So 86 ms.
    """
    device.compute.launch(nothing, lasts_s=0.006)
    for _ in range(8):
        device.memory.wait(device.compute.mark())
        device.memory.launch(nothing, lasts_s=0.010)
        device.compute.launch(nothing, lasts_s=0.006)
        device.compute.wait(device.memory.mark())


def in_turns(device: CpuDevice) -> None:
    """20 works of 10 ms on two streams in turns: 200 ms."""
    for _ in range(10):
        for stream, other in ((device.compute, device.memory), (device.memory, device.compute)):
            other.wait(stream.launch(nothing, lasts_s=0.01).end)


@pytest.mark.parametrize(
    ("give", "late_s", "expected_s"),
    [
        (overlapping, 0.0, 0.1),
        (waiting, 0.0, 0.096),
        (copying_ahead, 0.0, 0.086),
        # Each is ended 5 ms late, which counts for the last alone.
        (in_turns, 0.005, 0.205),
    ],
)
def test_streams_overlap_but_for_what_they_wait_for(
    give: Callable[[CpuDevice], None], late_s: float, expected_s: float
) -> None:
    with closing(CpuDevice(clock=ThreadClock(late_s))) as device:
        assert total_s(device, give) == pytest.approx(expected_s)


def test_paces_are_neither_undercut_nor_shortened(device: CpuDevice) -> None:
    """The n-th of works of 2 ms ends at least n times 2 ms after the first was given, and none before another."""
    device.begin()
    ends = [device.compute.launch(nothing, lasts_s=0.002).end for _ in range(20)]
    device.synchronize([device.compute])
    times_s = [end.time_s for end in ends]
    assert all(time_s >= 0.002 * number for number, time_s in enumerate(times_s, 1))
    assert times_s == sorted(times_s)
    # The stream is free for 20 ms before it is given a work of 10 ms, which then takes 10 ms from there.
    device.begin()
    time.sleep(0.02)
    given_s = device.now_s()
    interval = device.compute.launch(nothing, lasts_s=0.01)
    device.synchronize([device.compute])
    assert interval.end.time_s >= given_s + 0.01
    # Work that takes longer than its pace takes its own time.
    device.begin()
    interval = device.compute.launch(lambda: time.sleep(0.02), lasts_s=0.001)
    device.synchronize([device.compute])
    assert interval.end.time_s - interval.start.time_s >= 0.02
