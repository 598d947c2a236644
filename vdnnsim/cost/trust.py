"""The expected error of step times, by steps that were checked, and the basis of kernel times.

Checked steps stand in `checked.csv` beside the profiles: errors of simulated step times (simulated over measured less
one) on rows that nothing was fitted to, by card, mode, precision, kind of network and execution. Of other steps the
error is not known: of those of a rank that exchanges something, in a CUDA graph, or fused by rule, and of those in
which kernels wait for the host or for copies.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final

from vdnnsim.cost.kernel_table import read_measured_kernels
from vdnnsim.cost.rate_origins import model_origin
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.workload import Workload
from vdnnsim.files.packaged import PROFILES, shipped_folder
from vdnnsim.hardware.profile import Profile, read_profile
from vdnnsim.hardware.server import MeasuredKernels, Origin, Server
from vdnnsim.units import Precision

_CHECKED: Final = "checked.csv"
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
_HOST_DECIDES: Final = 1.1
"""Steps that take more than this much of their kernels' time are among no checked ones (reports/measured)."""
_ATTENTION: Final = ("attention", "aten._softmax", "aten._safe_softmax")
"""In the names of captured operators: fused attention, and the scores of one that is not."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The expected error of the step times of a machine.

    Attributes:
        share: of the seconds of kernels that rests on rates of this basis.
        error: expected mean absolute error, as a fraction of the measured time; None if not known.
        rows: number of measured steps of this kind behind it.
        twin: the profile with the same chip whose measured steps these are; empty if they are this card's.
    """

    basis: Basis
    share: float = 1.0
    error: float | None = None
    rows: int = 0
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
        """The expected error, and whose it is unless this card's: `+-9 %, a100_40gb`."""
        if self.basis is Basis.DATASHEET:
            return f"{OVER_PEAKS[0]:g} to {OVER_PEAKS[1]:g} times as long"
        if self.error is None:
            return "not known"
        return f"±{100 * self.error:.0f} %{', ' * bool(self.twin)}{self.twin}"


def basis_of(server: Server) -> Basis:
    if server.kernels is not None and _was_timed(server.kernels):
        return Basis.MEASURED
    return _BY_ORIGIN.get(model_origin(server), Basis.CARRIED_OVER)


@cache
def _was_timed(kernels: MeasuredKernels) -> bool:
    return any(row.count for row in read_measured_kernels(kernels))


def waits(busy_s: float, step_s: float) -> bool:
    """Return whether a GPU that works for `busy_s` idles for more of a step than in those that were checked."""
    return step_s > _HOST_DECIDES * busy_s


class Family(Enum):
    """Kinds of networks whose steps were checked."""

    CONVOLUTIONAL = "convolutional"
    TRANSFORMER = "transformer"


def family_of(workload: Workload) -> Family | None:
    """Return the kind of a network: convolutions are most of its products, or it has attention; None for others."""
    step, layers = workload.step, workload.graph.layers
    flop = {True: 0, False: 0}
    for each in step.operations:
        convolves = isinstance(each.work, ConvolutionWork) or layers[each.layer].kind is LayerKind.CONV
        flop[convolves] += each.flop.get(Arithmetic.PRODUCT, 0)
    if flop[True] > flop[False]:
        return Family.CONVOLUTIONAL
    attends = any(word in each.name for each in step.operations for word in _ATTENTION)
    attends = attends or any(each.kind is LayerKind.ATTENTION for each in layers)
    return Family.TRANSFORMER if attends else None


def trust_in(
    profile: Profile, workload: Workload, seconds: Mapping[Origin, float], execution: str, *, waits: bool
) -> Trust:
    """Return how far the times of steps on the machine of a profile can be trusted.

    Args:
        profile: none that is not shipped has checked steps.
        workload: of which the step is one iteration.
        seconds: of the kernels of a step, by the origin of the rates on which they rest.
        execution: `eager`, `compiled` or `cuda_graphs`.
        waits: whether the GPU idles for more of a step than in those that were checked.
    """
    server, by_basis = profile.server, defaultdict[Basis, float](float)
    for origin, resting_s in seconds.items():
        by_basis[_BY_ORIGIN.get(origin, Basis.CARRIED_OVER)] += resting_s
    basis = max(by_basis, key=lambda each: by_basis[each])
    share = by_basis[basis] / sum(by_basis.values())
    family = family_of(workload)
    # Fusion by rule is another step than what torch.compile makes.
    by_rule = execution == "compiled" and not (isinstance(workload, CapturedWorkload) and workload.captured.compiled)
    exchanges = any(each.collective is not None for each in workload.step.operations)
    if family is None or waits or by_rule or exchanges or not _is_shipped(profile):
        return Trust(basis, share)
    alike = _checked().get((workload.mode.value, _rates_of(workload.precision), family.value, execution), {})
    twins = (each for each in alike if basis is Basis.FITTED and _chip_of(each) == _chip(server))
    name = server.name if server.name in alike else next(twins, "")
    error, rows = alike.get(name, (None, 0))
    return Trust(basis, share, error, rows, name if name != server.name else "")


def _rates_of(precision: Precision) -> str:
    """Return the precision as rows have it: autocast multiplies as fast in bfloat16 as in float16."""
    return precision.value if precision.autocast is None else "amp"


@cache
def _checked() -> Mapping[tuple[str, ...], Mapping[str, tuple[float, int]]]:
    """Return the mean absolute error of checked steps and how many they are, by kind and profile."""
    found: dict[tuple[str, ...], dict[str, tuple[float, int]]] = defaultdict(dict)
    with (shipped_folder(PROFILES) / _CHECKED).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kind = row["mode"], _rates_of(Precision(row["precision"])), row["network"], row["execution"]
            error, rows = found[kind].get(row["profile"], (0.0, 0))
            more = int(row["rows"])
            mean = (error * rows + float(row["mean_absolute_error"]) * more) / (rows + more)
            found[kind][row["profile"]] = mean, rows + more
    return found


@cache
def _chip_of(name: str) -> object:
    return _chip(read_profile(shipped_folder(PROFILES) / f"{name}.yaml"))


def _chip(server: Server) -> object:
    """Return what cards with the same chip have in common, whatever memory is beside it."""
    return server.gpu.multiprocessors, server.gpu.flop_per_s


def _is_shipped(profile: Profile) -> bool:
    return Path(profile.file).resolve().parent == shipped_folder(PROFILES).resolve()
