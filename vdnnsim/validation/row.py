"""One row of a validation: a network, a batch size, a policy; what a device did, what the simulator says it does."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from vdnnsim.validation.run.side import Side
from vdnnsim.validation.tasks import Task

STILL_CALIBRATED: Final = 0.05
"""Share of its kernel time that may be predicted in a row that counts as calibrated.

A calibration refuses kernels whose times spread too far, as those of a few microseconds do now and then.
"""


class Outcome(Enum):
    """What came of a row; all but the first have nothing to compare."""

    RAN = "ran"
    DOES_NOT_FIT = "does not fit"
    REFUSED = "refused"
    OUT_OF_MEMORY = "out of memory"
    """Fits by the plan's own arithmetic, but the device had no room."""


@dataclass(frozen=True, slots=True)
class Raw:
    """The iteration without given durations: as fast as the device went, and as the calibrated times say."""

    measured_s: float
    simulated_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        policy, algorithms: as the plan states them.
        profiled_on_device: whether vdnn_dyn decided by trials on the device itself; else by replays.
        decision: of vdnn_dyn, whether it decides alike when its trials run on the device; else empty.
        kernels, unmeasured_kernels: kernels of the plan, and those of them whose time was predicted, not measured.
        predicted_share: of the time of all kernels, what those take.
        note: why nothing was measured, or empty.
        measured, simulated: None where there was nothing to measure or to replay.
        raw: None where durations were not given in the first place.
        runs_s: iteration time of each run, in their order.
        order_fault: where any run departed from the order of the replay; None where none did.
    """

    task: Task
    policy: str
    outcome: Outcome
    algorithms: str = ""
    profiled_on_device: bool = False
    decision: str = ""
    kernels: int = 0
    unmeasured_kernels: int = 0
    predicted_share: float = 0.0
    note: str = ""
    measured: Side | None = None
    simulated: Side | None = None
    raw: Raw | None = None
    runs_s: tuple[float, ...] = ()
    order_fault: str | None = None

    @property
    def calibrated(self) -> bool:
        """Whether all but a small part of its kernel time was measured on this machine."""
        return self.predicted_share <= STILL_CALIBRATED

    @property
    def label(self) -> str:
        """As tables show the policy."""
        return f"{self.policy} by device trials" if self.profiled_on_device else self.policy

    @property
    def time_error(self) -> float | None:
        """(simulated - measured) / measured of the iteration time; None where nothing was measured."""
        if self.measured is None or self.simulated is None:
            return None
        return self.simulated.iteration_s / self.measured.iteration_s - 1

    @property
    def memory_error(self) -> float | None:
        """The same of the peak of requested bytes."""
        if self.measured is None or self.simulated is None:
            return None
        return self.simulated.peaks.requested_bytes / self.measured.peaks.requested_bytes - 1

    @property
    def spread(self) -> float | None:
        """(slowest - fastest) / fastest of the runs; None of a single one, and where their durations were given."""
        return max(self.runs_s) / min(self.runs_s) - 1 if len(self.runs_s) > 1 and self.raw is None else None
