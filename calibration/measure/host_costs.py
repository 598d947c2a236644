"""Host time of queueing an operation on a stream, and of pinning memory."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from calibration.devices.interface import Device
from calibration.measure.session import Session
from calibration.measure.statistics import Sample, summarize
from calibration.measure.timing import Extent
from vdnnsim.units import KIB, MIB

_BATCH: Final = 100
_BATCHES: Final = 20
_ATTEMPTS: Final = 3
_PINNED_AGAIN: Final = 5
_SMALL: Final = 4 * KIB
_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
"""Memory limit of a container, pinned memory included."""


@dataclass(frozen=True, slots=True)
class HostCosts:
    """Seconds of the host.

    Attributes:
        kernel, copy, mark: of queueing one on a stream, by the executor's calls.
        allocation: of device memory, with the tensor that is laid into it, and its release.
        pinning: of pinning a block, by its bytes.
    """

    kernel: Sample
    copy: Sample
    mark: Sample
    allocation: Sample
    pinning: tuple[tuple[int, Sample], ...]


def host_memory_bytes(limit: Path = _LIMIT) -> int:
    """Return the memory of the host, or of the container."""
    nbytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(nbytes, int(limit.read_text(encoding="ascii")))
    except (OSError, ValueError):  # none, or the word `max`
        return nbytes


def host_steps(extent: Extent) -> int:
    return 4 + len(_pin_sizes(extent))


def measure_host(device: Device, session: Session, extent: Extent, kernel: Callable[[], None]) -> HostCosts:
    target, source = device.allocate(_SMALL), device.pin(_SMALL)

    def copy() -> None:
        target.copy_(source, non_blocking=True)

    def allocation() -> None:
        taken = device.allocate(_SMALL)
        taken.view(torch.float32).view(1, -1, 1, 1)
        device.release(taken)

    try:
        return HostCosts(
            kernel=_issue(device, session, "issue of a kernel", lambda: device.compute.launch(kernel)),
            copy=_issue(device, session, "issue of a copy", lambda: device.memory.launch(copy)),
            mark=_issue(device, session, "issue of a mark", device.compute.mark),
            allocation=_issue(device, session, "an allocation", allocation),
            pinning=tuple((nbytes, _pinning(device, session, nbytes)) for nbytes in _pin_sizes(extent)),
        )
    finally:
        device.synchronize([device.compute, device.memory])
        device.release(target)
        device.unpin(source)


def _issue(device: Device, session: Session, name: str, issue: Callable[[], object]) -> Sample:
    return session.sample(name, lambda: _steadiest(lambda: _issue_sample(device, issue)))


def _issue_sample(device: Device, issue: Callable[[], object]) -> Sample:
    """Return the seconds of one operation; each run is the mean over a hundred in a row."""
    seconds = []
    for _ in range(_BATCHES):
        # From an empty queue: a full one would make the host wait.
        device.begin()
        for _ in range(_BATCH):
            issue()
        seconds.append(device.now_s() / _BATCH)
        device.synchronize([device.compute, device.memory])
    return summarize(seconds)


def _pin_sizes(extent: Extent) -> tuple[int, ...]:
    """Return sizes from 1 MiB to the largest, each four times the one before."""
    sizes = [MIB]
    while 4 * sizes[-1] <= extent.largest_pin:
        sizes.append(4 * sizes[-1])
    return tuple(sizes)


def _pinning(device: Device, session: Session, nbytes: int) -> Sample:
    def pin() -> float:
        device.begin()
        block = device.pin(nbytes)
        taken_s = device.now_s()
        device.unpin(block)
        return taken_s

    def measure() -> Sample:
        return _steadiest(lambda: summarize([pin() for _ in range(_PINNED_AGAIN)]))

    return session.sample(f"pinning of {nbytes // MIB} MiB", measure)


def _steadiest(measure: Callable[[], Sample]) -> Sample:
    """Return a sample, measured again a few times while it is refused."""
    samples = [measure()]
    while samples[-1].is_refused and len(samples) < _ATTEMPTS:
        samples.append(measure())
    return min(samples, key=lambda sample: sample.spread)
