"""Times of copies between host and device: of every size alone, and beside other work.

Beside other work only those runs count during all of which the other work was running.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import torch

from calibration.devices.interface import Device, DeviceStream, Interval
from calibration.kernels.tensors import dtype_of
from calibration.measure.device_rates import DeviceRates, Rate, RateKernel, matrix_product, memory_stream
from calibration.measure.session import Session
from calibration.measure.statistics import Sample, summarize
from calibration.measure.timing import Extent, time_work, warm_up
from vdnnsim.hardware.copies import CopyRow, Direction, HostMemory
from vdnnsim.units import KIB

_FEWEST_TOGETHER: Final = 3
_LONGEST_TOGETHER: Final = 400
_MOST_PLACES: Final = 1000
OTHER_DIRECTION: Final = "a copy in the other direction"
MATRIX_PRODUCT: Final = "a matrix product"
MEMORY_STREAM: Final = "a stream through device memory"
MORE_STREAMS: Final = {1: "a copy of another stream", 3: "copies of three other streams"}
"""Work beside a copy."""

_SHARE: Final = 16
"""Copies beside other work are so much smaller than the largest, so that several fit into the same memory."""


class Copy:
    """A copy between two large blocks of flat bytes, in each run at another place, so that no cache has it."""

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
        # Views made beforehand: making one takes longer than some copies.
        self._pairs = cycle([(target[begin : begin + nbytes], source[begin : begin + nbytes]) for begin in begins])

    def run(self) -> None:
        """Copy, or on a GPU queue the copy."""
        target, source = next(self._pairs)
        target.copy_(source, non_blocking=True)


def copy_sizes(largest: int) -> tuple[int, ...]:
    """Return sizes from 4 KiB to the largest, each four times the one before."""
    sizes = [4 * KIB]
    while sizes[-1] < largest:
        sizes.append(min(4 * sizes[-1], largest))
    return tuple(sizes)


@dataclass(frozen=True, slots=True)
class Load:
    """A work that a stream repeats, and its seconds alone."""

    stream: DeviceStream
    work: Callable[[], None]
    alone_s: float


def time_concurrently(device: Device, loads: Sequence[Load], *, window_s: float) -> tuple[Sample, ...]:
    """Return the seconds of each of several loads, on streams of their own, while the others run for a window.

    Empty where they did not overlap often enough, or one spreads too much.
    """
    for attempt in range(3):
        longest_s = window_s * 2**attempt
        device.begin()
        intervals: list[list[Interval]] = [[] for _ in loads]
        counts = [min(_LONGEST_TOGETHER, math.ceil(longest_s / load.alone_s)) for load in loads]
        # In turns, so that no stream is empty while the queue of another is filled.
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
    return [each.duration_s for each in intervals[index] if each.start.time_s >= start_s and each.end.time_s <= end_s]


@dataclass(frozen=True, slots=True)
class TimedCopy:
    """A copy alone, or beside other work.

    Attributes:
        beside: the other work; empty for none.
        kept: the copy's rate over that alone.
        other_kept: the other work's speed over that alone.
    """

    direction: Direction
    host_memory: HostMemory
    nbytes: int
    sample: Sample
    beside: str = ""
    kept: float = 1.0
    other_kept: float = 1.0

    @property
    def row(self) -> CopyRow:
        found, note = self.sample, "spreads too much to be used" if self.sample.is_refused else ""
        kind = self.direction, self.host_memory, self.beside, self.nbytes
        return CopyRow(*kind, found.median, found.spread, found.count, note)


def link_steps(extent: Extent) -> int:
    return 4 * len(copy_sizes(extent.largest_copy)) + 2 * (3 + len(MORE_STREAMS))


def measure_link(device: Device, session: Session, extent: Extent, rates: DeviceRates) -> tuple[TimedCopy, ...]:
    """Measure copies on an idle device; unsteady ones beside other work are left out."""
    with _copies_between_blocks(device, extent.largest_copy) as copy_of:
        for direction in Direction:
            # An idle link runs at a lower generation until there are copies.
            largest = copy_of(direction, HostMemory.PINNED, extent.largest_copy, 0)
            remark = warm_up(device, device.memory, largest.run, extent.warm_up)
            session.remark(f"warming up by copies {direction.value}", remark)
        alone = [
            TimedCopy(direction, memory, nbytes, _alone(device, session, extent, copy_of(direction, memory, nbytes, 0)))
            for direction in Direction
            for memory in HostMemory
            for nbytes in copy_sizes(extent.largest_copy)
        ]
        return (*alone, *_beside_other_work(device, session, extent, rates, copy_of, alone))


def _alone(device: Device, session: Session, extent: Extent, copy: Copy) -> Sample:
    name = f"copy {copy.direction.value} {copy.host_memory.value} {copy.nbytes} B"
    is_queued = copy.host_memory is HostMemory.PINNED
    return session.sample(name, lambda: time_work(device, device.memory, copy.run, extent.copies, is_queued=is_queued))


CopyOf = Callable[[Direction, HostMemory, int, int], Copy]
"""Returns a copy of a direction, host memory, bytes and first place."""


@contextmanager
def _copies_between_blocks(device: Device, nbytes: int) -> Iterator[CopyOf]:
    on_device = device.allocate(nbytes)
    host = {HostMemory.PINNED: device.pin(nbytes), HostMemory.PAGEABLE: torch.empty(nbytes, dtype=torch.uint8)}

    def touch() -> None:
        # The first access of a page takes longer.
        for block in (on_device, *host.values()):
            block.zero_()

    device.compute.launch(touch)
    device.synchronize([device.compute])
    try:
        yield lambda direction, memory, size, place: Copy(direction, memory, size, host[memory], on_device, place=place)
    finally:
        device.synchronize([device.memory])
        device.release(on_device)
        device.unpin(host[HostMemory.PINNED])


def _beside_other_work(
    device: Device, session: Session, extent: Extent, rates: DeviceRates, copy_of: CopyOf, alone: Sequence[TimedCopy]
) -> Iterator[TimedCopy]:
    """Measure pinned copies beside other copies and the two kernels of known work."""
    nbytes, pinned = extent.largest_copy // _SHARE, HostMemory.PINNED
    streams: list[DeviceStream] = [device.new_stream() for _ in range(max(MORE_STREAMS))]
    alone_s = {
        each.direction: each.sample.median for each in alone if (each.host_memory, each.nbytes) == (pinned, nbytes)
    }

    def load(stream: DeviceStream, direction: Direction, place: int) -> Load:
        return Load(stream, copy_of(direction, pinned, nbytes, place).run, alone_s[direction])

    def kernel(held: RateKernel, rate: Rate) -> Load:
        return Load(device.compute, held.work, rate.sample.median)

    def beside(other: str, direction: Direction, first: Load, others: list[Load]) -> Iterator[TimedCopy]:
        loads = [first, *others]
        window_s = max(extent.window_s, 10 * max(load.alone_s for load in loads))
        name = f"copy {direction.value} beside {other}"
        samples = session.concurrently(name, lambda: time_concurrently(device, loads, window_s=window_s))
        if samples:
            kept, *others_kept = (load.alone_s / sample.median for load, sample in zip(loads, samples, strict=True))
            yield TimedCopy(direction, pinned, nbytes, samples[0], other, kept, min(others_kept))

    for direction, opposite in ((Direction.H2D, Direction.D2H), (Direction.D2H, Direction.H2D)):
        first = load(device.memory, direction, 0)
        yield from beside(OTHER_DIRECTION, direction, first, [load(streams[0], opposite, 1)])
        for count, name in MORE_STREAMS.items():
            yield from beside(name, direction, first, [load(streams[n], direction, n + 1) for n in range(count)])
        with matrix_product(device, dtype_of(rates.element_type), extent.product_side) as held:
            yield from beside(MATRIX_PRODUCT, direction, first, [kernel(held, rates.product)])
        with memory_stream(device, extent.stream_bytes) as held:
            yield from beside(MEMORY_STREAM, direction, first, [kernel(held, rates.stream)])
