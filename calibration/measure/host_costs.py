"""Host time of queueing an operation on a stream, and of pinning memory.

An operation is timed in turn with the others, as an iteration issues them, and what it returns stays alive until the
batch has ended: a hundred of one kind in a row find their code and the driver's state in the cache, and reuse the same
events, and took an H200's host a half to a fifth of what they take in an iteration.
"""

import os
from collections.abc import Callable, Mapping
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

    issues: dict[str, Callable[[], object]] = {
        "allocation": allocation,
        "kernel": lambda: device.compute.launch(kernel),
        "mark": device.compute.mark,
        "copy": lambda: device.memory.launch(copy),
    }

    def issue(name: str, kind: str) -> Sample:
        return session.sample(name, lambda: _steadiest(lambda: _issue_sample(device, issues, kind)))

    try:
        return HostCosts(
            kernel=issue("issue of a kernel", "kernel"),
            copy=issue("issue of a copy", "copy"),
            mark=issue("issue of a mark", "mark"),
            allocation=issue("an allocation", "allocation"),
            pinning=tuple((nbytes, _pinning(device, session, nbytes)) for nbytes in _pin_sizes(extent)),
        )
    finally:
        device.synchronize([device.compute, device.memory])
        device.release(target)
        device.unpin(source)


def _issue_sample(device: Device, issues: Mapping[str, Callable[[], object]], kind: str) -> Sample:
    """Return the seconds of one operation of a kind; each run is the mean over a hundred, in turn with the others."""
    seconds = []
    for _ in range(_BATCHES):
        # From an empty queue: a full one would make the host wait.
        device.begin()
        spent_s, queued = 0.0, []
        for _ in range(_BATCH):
            for each, issue in issues.items():
                begun_s = device.now_s()
                queued.append(issue())
                spent_s += device.now_s() - begun_s if each == kind else 0.0
        seconds.append(spent_s / _BATCH)
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
