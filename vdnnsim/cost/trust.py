"""The expected error of step times, by the basis of kernel times and by steps that were checked.

Those stand in `checked.csv` beside the profiles: errors of simulated step times (simulated over measured less one) on
rows that were not fitted to.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final

from vdnnsim.cost.kernel_table import read_measured_kernels
from vdnnsim.cost.rate_origins import model_origin
from vdnnsim.dnn.workload import Mode
from vdnnsim.files.packaged import PROFILES, shipped_folder
from vdnnsim.hardware.profile import Profile, read_profile
from vdnnsim.hardware.server import MeasuredKernels, Origin, Server
from vdnnsim.units import Precision

_CHECKED: Final = "checked.csv"
OF_SISTER_CARDS: Final = 0.25
"""The largest mean error of steps on cards whose cost model is that of another: RTX 2080 Ti, TITAN RTX, TITAN V."""
OVER_PEAKS: Final = (1.1, 3.0)
"""Range of measured step times over those by peaks, on an RTX 3090, an RTX 4090, an A100, an H100 and an H200."""

PEAKS_TOO_LOW: Final = 0.05
"""19 of 20 measured peaks of a process were at most this much above the simulated ones, as a fraction of these: of 114
of networks of timm on an A100 that nothing was fitted to (reports/public2026/peak_memory.csv)."""


def certain_bytes(capacity_bytes: int) -> int:
    """Return the largest simulated peak that fits a capacity even if it is too low by `PEAKS_TOO_LOW`."""
    return int(capacity_bytes / (1 + PEAKS_TOO_LOW))


class Basis(Enum):
    """The basis of the kernel times of a machine, the most reliable first."""

    MEASURED = "measured"
    FITTED = "fitted"
    CARRIED_OVER = "carried over"
    DATASHEET = "datasheet"


_BY_ORIGIN: Final = {
    Origin.MEASURED: Basis.MEASURED,
    Origin.FITTED: Basis.FITTED,
    Origin.DATASHEET: Basis.DATASHEET,
}
_WHOLE: Final = 0.995


@dataclass(frozen=True, slots=True)
class Trust:
    """The expected error of the step times of a machine.

    Attributes:
        share: of the seconds of kernels that rests on rates of this basis.
        error: expected mean absolute error, as a fraction of the measured time; None if not known.
        rows: number of measured steps of this card behind it; 0 if it is that of other cards.
        alike: whether those are of this mode and precision.
        twin: the profile with the same chip whose measured steps stand in for this card's; empty for none.
    """

    basis: Basis
    share: float = 1.0
    error: float | None = None
    rows: int = 0
    alike: bool = True
    twin: str = ""

    def range_s(self, simulated_s: float) -> tuple[float, float] | None:
        """Return the range in which a real step is expected on average; None if no error is known."""
        if self.basis is Basis.DATASHEET:
            return OVER_PEAKS[0] * simulated_s, OVER_PEAKS[1] * simulated_s
        if self.error is None:
            return None
        return simulated_s / (1 + self.error), simulated_s / (1 - self.error)

    @property
    def resting(self) -> str:
        """On what kernel times rest, with the share of their seconds unless that is all: `87 % fitted`."""
        return self.basis.value if self.share >= _WHOLE else f"{100 * self.share:.0f} % {self.basis.value}"

    @property
    def expected(self) -> str:
        """The expected error, and whose it is unless this card's: `+-9 %, other cards`; or why none is known."""
        if self.basis is Basis.DATASHEET:
            return f"{OVER_PEAKS[0]:g} to {OVER_PEAKS[1]:g} times as long"
        if self.error is None:
            return "not known, no measured steps"
        others = "" if self.rows else f", {self.twin or 'other cards'}"
        return f"±{100 * self.error:.0f} %{others}{'' if self.alike else ', other steps'}"


def basis_of(server: Server) -> Basis:
    if server.kernels is not None and _was_timed(server.kernels):
        return Basis.MEASURED
    return _BY_ORIGIN.get(model_origin(server), Basis.CARRIED_OVER)


@cache
def _was_timed(kernels: MeasuredKernels) -> bool:
    return any(row.count for row in read_measured_kernels(kernels))


def trust_in(profile: Profile, mode: Mode, precision: Precision, seconds: Mapping[Origin, float]) -> Trust:
    """Return the expected error of steps on the machine of a profile; None for one that is not shipped.

    `seconds` of the kernels of a step, by the origin of the rates on which they rest.
    """
    server, by_basis = profile.server, defaultdict[Basis, float](float)
    for origin, resting_s in seconds.items():
        by_basis[_BY_ORIGIN.get(origin, Basis.CARRIED_OVER)] += resting_s
    basis = max(by_basis, key=lambda each: by_basis[each])
    share = by_basis[basis] / sum(by_basis.values())
    name = (_checked_twin(server) if basis is Basis.FITTED else server.name) if _is_shipped(profile) else ""
    every = [each for each in _checked() if each["profile"] == name]
    same = [each for each in every if (each["mode"], each["precision"]) == (mode.value, precision.value)]
    if found := same or every:
        rows = sum(int(each["rows"]) for each in found)
        error = sum(int(each["rows"]) * float(each["mean_absolute_error"]) for each in found) / rows
        own = name == server.name
        return Trust(basis, share, error, rows if own else 0, bool(same), "" if own else name)
    return Trust(basis, share, OF_SISTER_CARDS if basis is Basis.CARRIED_OVER else None)


@cache
def _checked() -> Sequence[dict[str, str]]:
    with (shipped_folder(PROFILES) / _CHECKED).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _checked_twin(server: Server) -> str:
    """Return the name of a machine if it was checked, else that of a checked one with the same chip, or nothing."""
    chips = _checked_chips()
    return server.name if server.name in chips else next((name for name in chips if chips[name] == _chip(server)), "")


@cache
def _checked_chips() -> Mapping[str, object]:
    folder = shipped_folder(PROFILES)
    return {name: _chip(read_profile(folder / f"{name}.yaml")) for name in {each["profile"]: 0 for each in _checked()}}


def _chip(server: Server) -> object:
    """Return what cards with the same chip have in common, whatever memory is beside it."""
    return server.gpu.multiprocessors, server.gpu.flop_per_s


def _is_shipped(profile: Profile) -> bool:
    return Path(profile.file).resolve().parent == shipped_folder(PROFILES).resolve()
