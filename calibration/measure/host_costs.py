"""What the host itself takes: putting an operation on a stream, and pinning memory."""

from collections.abc import Callable
from typing import Final

import torch

from calibration.devices.port import Device
from calibration.measure.statistics import Sample, summarize
from vdnnsim.units import MIB

_BATCH: Final = 100
_BATCHES: Final = 20
_ATTEMPTS: Final = 3
_PINNED_AGAIN: Final = 3


def time_issue(device: Device, issue: Callable[[], object]) -> Sample:
    """Return the seconds of the host for one operation, each of the runs the mean over a hundred in a row."""
    samples = [_issue_sample(device, issue)]
    while samples[-1].is_refused and len(samples) < _ATTEMPTS:
        samples.append(_issue_sample(device, issue))
    return min(samples, key=lambda sample: sample.spread)


def _issue_sample(device: Device, issue: Callable[[], object]) -> Sample:
    seconds = []
    for _ in range(_BATCHES):
        # Starts from an empty queue, for a full one would make the host wait.
        device.begin()
        for _ in range(_BATCH):
            issue()
        seconds.append(device.now_s() / _BATCH)
        device.synchronize([device.compute, device.memory])
    return summarize(seconds)


def pin_sizes(largest: int) -> tuple[int, ...]:
    """Return sizes from 1 MiB to the largest, each four times the one before."""
    sizes = [MIB]
    while 4 * sizes[-1] <= largest:
        sizes.append(4 * sizes[-1])
    return tuple(sizes)


def time_pinning(device: Device, nbytes: int) -> Sample:
    """Return the seconds that pinning so many bytes takes.

    Blocks are held until all are pinned, for PyTorch hands a block that was given back out again at no cost.
    """
    seconds: list[float] = []
    held: list[torch.Tensor] = []
    for _ in range(_PINNED_AGAIN):
        device.begin()
        held.append(device.pin(nbytes))
        seconds.append(device.now_s())
    return summarize(seconds)
