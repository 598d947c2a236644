"""What came of executing a plan on a device."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from calibration.devices.port import MemoryCount
from vdnnsim.trace import IterationTrace


@dataclass(frozen=True, slots=True)
class Execution:
    """One iteration on a real device.

    Attributes:
        trace: what happened, in the terms of the engine's trace.
        peaks: maxima of device memory as the device counted them, beyond what was in use before the plan first ran.
        ordinal: how often the plan has run, this time included, since its device last ran another one: the first of
            these runs finds an empty cache.
        loss: the loss of the iteration.
        gradients: dW by index of its layer, flat, copied to the host; empty where nobody wants them.
        weights: W after the update, likewise, where the workload updates them.
    """

    trace: IterationTrace
    peaks: MemoryCount
    ordinal: int
    loss: float
    gradients: Mapping[int, torch.Tensor]
    weights: Mapping[int, torch.Tensor]
