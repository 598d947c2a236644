"""Fits the parameters of the model of modern GPUs to published times: `python -m vdnnsim.cost.fit PROFILE.yaml`.

Fitted are the parameters whose origin the profile calls `fitted`; all others are held where they are. Minimized is the
sum of rho(w ln(predicted / observed)) over the rows with role `fit` beside the profile (`PROFILE.fit.csv`), rho the
soft L1 loss with its bend at 5 %, so that a row that the model cannot reach does not bend the others. w^2 is one over
the rows of the group. A twentieth of ln(parameter / start) is added for each parameter, so that what rows hardly tell
stays near what kernels of its kind reach on most cards; `fit.yaml` has what the cards with traces, V100 and H100, agree
on.

Left out in turn are each source, where a card has several, and a fifth of the shapes of each group, or each network.
"""

import math
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import msgspec

from vdnnsim.cost.cross_validation import error_lines, left_out_errors
from vdnnsim.cost.efficiency import efficient_gpu
from vdnnsim.cost.efficiency_parameters import EfficiencyParameters
from vdnnsim.cost.efficiency_rows import EfficiencyRow
from vdnnsim.cost.efficiency_time import EfficientGpu
from vdnnsim.hardware.server import Origin, Server

_LOSS_BEND: Final = 0.05
_PRIOR: Final = 0.05
_UNBOUNDED: Final = 30.0
_FOLDS: Final = 5


class FitStart(msgspec.Struct, frozen=True):
    """Where the fits start, by parameter, and how much a group of rows weighs among those of `maxwell`."""

    efficiency: dict[str, float]
    maxwell: dict[str, float]
    group_weights: dict[str, float]


START: Final = msgspec.yaml.decode(Path(__file__).with_name("fit.yaml").read_bytes(), type=FitStart)


def fit_logarithms(
    start: Mapping[str, float], residuals: Callable[[Mapping[str, float]], list[float]], factor: float, ftol: float
) -> dict[str, float]:
    """Return the parameters with the least soft L1 loss of residuals, fractions at most 1, others near their start.

    Raises:
        ImportError: scipy is not installed.
    """
    # Not at the top: runs read parameters of this package, and no run fits them.
    from scipy.optimize import least_squares

    logs = [math.log(value) for value in start.values()]
    spread = math.log(factor)

    def named(point: Iterable[float]) -> dict[str, float]:
        return {name: math.exp(float(log)) for name, log in zip(start, point, strict=True)}

    upper = [1e-9 if name.endswith("_fraction") else log + spread for name, log in zip(start, logs, strict=True)]
    solution = least_squares(
        lambda point: residuals(named(point)),
        logs,
        bounds=([log - spread for log in logs], upper),
        loss="soft_l1",
        f_scale=_LOSS_BEND,
        diff_step=1e-3,
        ftol=ftol,
    )
    return named(solution.x)


def fit_efficiencies(server: Server, rows: Sequence[EfficiencyRow]) -> EfficientGpu:
    """Return the GPU of a server with the parameters that suit the rows with role `fit` best."""
    stated = efficient_gpu(server)
    start = {name: START.efficiency[name] for name in fitted_names(server)}
    used = [row for row in rows if row.role == "fit"]
    sizes = Counter(row.group for row in used)

    def gpu_of(found: Mapping[str, float]) -> EfficientGpu:
        return replace(stated, parameters=EfficiencyParameters(**{**asdict(stated.parameters), **found}))

    def residuals(found: Mapping[str, float]) -> list[float]:
        gpu = gpu_of(found)
        errors = [math.log(row.predicted_s(gpu) / row.observed_s) / math.sqrt(sizes[row.group]) for row in used]
        return errors + [_PRIOR * math.log(found[name] / first) for name, first in start.items()]

    return gpu_of(fit_logarithms(start, residuals, _UNBOUNDED, ftol=1e-4))


def fitted_names(server: Server) -> list[str]:
    """Return the parameters of the cost model that the profile of a server calls fitted."""
    paths = {figure.path for figure in server.figures if figure.origin is Origin.FITTED}
    return [name for name in START.efficiency if f"cost_model.{name}" in paths]


def efficiency_report(server: Server, rows: Sequence[EfficiencyRow], gpu: EfficientGpu) -> str:
    """Return the three tables: rows, groups, parameters."""
    lines = [f"{'role':10}{'group':34}{'kernel':42}{'phase':18}{'type':9}{'observed':>14}{'predicted':>14}{'error':>8}"]
    lines += [
        f"{row.role:10}{row.group:34}{row.subject:42}{row.phase.value:18}{row.element_type.value:9}"
        f"{row.observed_s * 1e6:11.1f} us{row.predicted_s(gpu) * 1e6:11.1f} us{row.relative_error(gpu):+8.1%}"
        for row in rows
    ]
    errors: dict[str, list[float]] = {}
    for row in rows:
        errors.setdefault(f"{row.role:10}{row.group}", []).append(row.relative_error(gpu))
    lines += ["", *error_lines(f"{'role      group':46}", errors)]
    lines += ["", f"{'parameter':42}{'fitted':>12}{'profile':>12}"]
    found = asdict(gpu.parameters)
    lines += [f"{name:42}{found[name]:12.4g}{server.cost_model[name]:12.4g}" for name in fitted_names(server)]
    return "\n".join(lines) + "\n"


def left_out_report(server: Server, rows: Sequence[EfficiencyRow]) -> str:
    """Return the errors of rows that were left out of the fit: by fifths of shapes or by network, and by source."""

    def errors(fold: Callable[[EfficiencyRow], Hashable]) -> dict[str, list[float]]:
        return left_out_errors(
            rows, lambda fitted: list(map(fold, fitted)), lambda kept: fit_efficiencies(server, kept)
        )

    lines = error_lines(f"{'left out, by shape or network':46}", errors(_fold))
    if len({row.source for row in rows if row.role == "fit"}) > 1:
        lines += ["", *error_lines(f"{'left out, by source':46}", errors(lambda row: row.source))]
    return "\n".join(lines) + "\n"


def _fold(row: EfficiencyRow) -> Hashable:
    """Return what is left out together: all steps of a network, or a fifth of the shapes."""
    return row.network.partition(" ")[0] or zlib.crc32(row.kernels[0].text.encode()) % _FOLDS
