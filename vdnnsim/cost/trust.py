"""The error to expect of a step time: what kernel times rest on, and how far checked steps were off.

What is known stands in `checked.csv` beside the profiles: of rows that nothing was fitted to, how far simulated step
times were off, simulated over measured less one.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final

from vdnnsim.cost.kernel_table import read_measured_kernels
from vdnnsim.cost.machine import model_origin
from vdnnsim.dnn.workload import Mode
from vdnnsim.files.packaged import PROFILES, shipped_folder
from vdnnsim.hardware.profile import Profile
from vdnnsim.hardware.server import MeasuredKernels, Origin, Server
from vdnnsim.units import Precision

_CHECKED: Final = "checked.csv"
OF_SISTER_CARDS: Final = 0.25
"""The largest mean error of steps on cards whose cost model is that of another: RTX 2080 Ti, TITAN RTX, TITAN V."""
OVER_PEAKS: Final = (1.1, 3.0)
"""By how much real steps of an RTX 3090, an RTX 4090, an A100, an H100 and an H200 took longer than peaks allow."""


class Basis(Enum):
    """What the kernel times of a machine rest on, the best known first."""

    MEASURED = "measured"
    FITTED = "fitted"
    CARRIED_OVER = "carried over"
    DATASHEET = "datasheet"


@dataclass(frozen=True, slots=True)
class Trust:
    """How sure the step times of a machine are.

    Attributes:
        fitted, rates: how many of the parameters of its cost model were fitted on it, and how many there are.
        error: the mean absolute error to expect, as a fraction of what was measured; None where nobody knows.
        rows: on how many measured steps of this very card that was found; 0 where it is that of other cards.
        alike: whether those rows are of this mode and precision.
    """

    basis: Basis
    fitted: int = 0
    rates: int = 0
    error: float | None = None
    rows: int = 0
    alike: bool = True

    def range_s(self, simulated_s: float) -> tuple[float, float] | None:
        """Return between which times a real step is expected on average; None where no error is known."""
        if self.basis is Basis.DATASHEET:
            return OVER_PEAKS[0] * simulated_s, OVER_PEAKS[1] * simulated_s
        if self.error is None:
            return None
        return simulated_s / (1 + self.error), simulated_s / (1 - self.error)

    @property
    def words(self) -> str:
        """As a table has it: `fitted (3 of 29 rates), +-9 %`."""
        part = f" ({self.fitted} of {self.rates} rates)" if self.basis is Basis.FITTED else ""
        if self.basis is Basis.DATASHEET:
            return f"datasheet peaks, {OVER_PEAKS[0]:g} to {OVER_PEAKS[1]:g} times as long"
        if self.error is None:
            return f"{self.basis.value}{part}, error not known"
        others = "" if self.rows and self.alike else ", of other steps" if self.rows else ", of other cards"
        return f"{self.basis.value}{part}, ±{100 * self.error:.0f} %{others}"


def basis_of(server: Server) -> Basis:
    """Return what the kernel times of a machine rest on."""
    if server.kernels is not None and _was_timed(server.kernels):
        return Basis.MEASURED
    by_origin = {Origin.FITTED: Basis.FITTED, Origin.DATASHEET: Basis.DATASHEET}
    return by_origin.get(model_origin(server), Basis.CARRIED_OVER)


@cache
def _was_timed(kernels: MeasuredKernels) -> bool:
    return any(row.count for row in read_measured_kernels(kernels))


def trust_in(profile: Profile, mode: Mode, precision: Precision) -> Trust:
    """Return how sure steps are on the machine of a profile; of one that is not shipped no error is known."""
    server, basis = profile.server, basis_of(profile.server)
    origins = [each.origin for each in server.figures if each.path.startswith("cost_model.")]
    fitted = sum(origin in (Origin.FITTED, Origin.MEASURED) for origin in origins)
    every = [each for each in _checked() if each["profile"] == server.name] if _is_shipped(profile) else []
    same = [each for each in every if (each["mode"], each["precision"]) == (mode.value, precision.value)]
    if found := same or every:
        rows = sum(int(each["rows"]) for each in found)
        error = sum(int(each["rows"]) * float(each["mean_absolute_error"]) for each in found) / rows
        return Trust(basis, fitted, len(origins), error, rows, bool(same))
    return Trust(basis, fitted, len(origins), OF_SISTER_CARDS if basis is Basis.CARRIED_OVER else None)


@cache
def _checked() -> Sequence[dict[str, str]]:
    with (shipped_folder(PROFILES) / _CHECKED).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _is_shipped(profile: Profile) -> bool:
    return Path(profile.file).resolve().parent == shipped_folder(PROFILES).resolve()
