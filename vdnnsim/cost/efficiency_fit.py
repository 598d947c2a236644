"""Fits the parameters of the model of modern GPUs to published times: `python -m vdnnsim.cost.fit PROFILE.yaml`.

Fitted are the parameters whose origin the profile calls `fitted`; all others are held where they are. Minimized is the
sum of rho(w ln(predicted / observed)) over the rows with role `fit` beside the profile (`PROFILE.fit.csv`), rho the
soft L1 loss with its bend at 5 %, so that a row that the model cannot reach does not bend the others. w^2 is one over
the rows of the group. A twentieth of ln(parameter / start) is added for each parameter, so that what rows hardly tell
stays near what kernels of its kind reach on most cards; START is what the cards with traces, V100 and H100, agree on.

Left out in turn are each source, where a card has several, and a fifth of the shapes of each group, or each network.
"""

import math
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final

from vdnnsim.cost.efficiency import efficient_gpu
from vdnnsim.cost.efficiency_parameters import EfficiencyParameters
from vdnnsim.cost.efficiency_rows import EfficiencyRow
from vdnnsim.cost.efficiency_time import EfficientGpu
from vdnnsim.hardware.server import Origin, Server

START: Final[Mapping[str, float]] = {
    "launch_overhead_s": 2e-6,
    "cuda_flop_fraction": 0.9,
    "cuda_forward_flop_fraction": 0.75,
    "cuda_data_flop_fraction": 0.75,
    "cuda_weights_flop_fraction": 0.75,
    "cuda_winograd_flop_fraction": 0.5,
    "cuda_load_flop": 4.0,
    "cuda_start_depth": 20.0,
    "tensor_flop_fraction": 0.9,
    "tensor_forward_flop_fraction": 0.9,
    "tensor_data_flop_fraction": 0.9,
    "tensor_weights_flop_fraction": 0.8,
    "tensor_load_flop": 5.0,
    "tensor_start_depth": 60.0,
    "attention_flop_fraction": 0.5,
    "depthwise_flop_fraction": 0.3,
    "depthwise_weights_flop_fraction": 0.1,
    "depthwise_strided_flop_fraction": 0.01,
    "product_dram_fraction": 0.8,
    "winograd_dram_fraction": 0.6,
    "pointwise_dram_fraction": 0.9,
    "copy_dram_fraction": 0.85,
    "reduction_dram_fraction": 0.8,
    "normalization_dram_fraction": 0.8,
    "normalization_last_dram_fraction": 0.8,
    "row_normalization_dram_fraction": 0.65,
    "pooling_dram_fraction": 0.7,
    "pooling_gradient_dram_fraction": 0.35,
    "update_dram_fraction": 0.85,
}
_LOSS_BEND: Final = 0.05
_PRIOR: Final = 0.05
_UNBOUNDED: Final = 30.0
_FOLDS: Final = 5


def fit_efficiencies(server: Server, rows: Sequence[EfficiencyRow]) -> EfficientGpu:
    """Return the GPU of a server with the parameters that suit the rows with role `fit` best."""
    # Not at the top: runs read parameters of this package, and no run fits them.
    from scipy.optimize import least_squares

    stated = efficient_gpu(server)
    names = fitted_names(server)
    used = [row for row in rows if row.role == "fit"]
    sizes = Counter(row.group for row in used)
    weights = [1 / math.sqrt(sizes[row.group]) for row in used]
    start = [math.log(START[name]) for name in names]

    def gpu_at(logs: Iterable[float]) -> EfficientGpu:
        found = {name: math.exp(log) for name, log in zip(names, logs, strict=True)}
        return replace(stated, parameters=EfficiencyParameters(**{**asdict(stated.parameters), **found}))

    def residuals(point: Iterable[float]) -> list[float]:
        logs = [float(each) for each in point]
        gpu = gpu_at(logs)
        errors = [weight * row.log_error(gpu) for row, weight in zip(used, weights, strict=True)]
        return errors + [_PRIOR * (log - first) for log, first in zip(logs, start, strict=True)]

    spread = math.log(_UNBOUNDED)
    upper = [1e-9 if name.endswith("_fraction") else log + spread for name, log in zip(names, start, strict=True)]
    bounds = ([log - spread for log in start], upper)
    solution = least_squares(
        residuals, start, bounds=bounds, loss="soft_l1", f_scale=_LOSS_BEND, diff_step=1e-3, ftol=1e-4
    )
    return gpu_at(solution.x.tolist())


def fitted_names(server: Server) -> list[str]:
    """Return the parameters of the cost model that the profile of a server calls fitted."""
    paths = {figure.path for figure in server.figures if figure.origin is Origin.FITTED}
    return [name for name in START if f"cost_model.{name}" in paths]


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
    lines += ["", *_summary("role      group", errors)]
    lines += ["", f"{'parameter':42}{'fitted':>12}{'profile':>12}"]
    found = asdict(gpu.parameters)
    lines += [f"{name:42}{found[name]:12.4g}{server.cost_model[name]:12.4g}" for name in fitted_names(server)]
    return "\n".join(lines) + "\n"


def left_out_report(server: Server, rows: Sequence[EfficiencyRow]) -> str:
    """Return the errors of rows that were left out of the fit: by fifths of shapes or by network, and by source."""
    fitted = [row for row in rows if row.role == "fit"]
    folds = _left_out(server, fitted, _fold)
    lines = _summary("left out, by shape or network", folds)
    if len({row.source for row in fitted}) > 1:
        lines += ["", *_summary("left out, by source", _left_out(server, fitted, lambda row: row.source))]
    return "\n".join(lines) + "\n"


def _fold(row: EfficiencyRow) -> Hashable:
    """Return what is left out together: all steps of a network, or a fifth of the shapes."""
    return row.network.partition(" ")[0] or zlib.crc32(row.kernels[0].text.encode()) % _FOLDS


def _left_out(
    server: Server, rows: Sequence[EfficiencyRow], fold_of: Callable[[EfficiencyRow], Hashable]
) -> dict[str, list[float]]:
    errors: dict[str, list[float]] = {row.group: [] for row in rows}
    for fold in dict.fromkeys(map(fold_of, rows)):
        gpu = fit_efficiencies(server, [row for row in rows if fold_of(row) != fold])
        for row in rows:
            if fold_of(row) == fold:
                errors[row.group].append(row.relative_error(gpu))
    return errors


def _summary(head: str, errors: Mapping[str, Sequence[float]]) -> list[str]:
    lines = [f"{head:46}{'rows':>5}{'mean absolute error':>21}{'mean error':>12}"]
    for name in sorted(errors):
        found = errors[name]
        absolute = sum(map(abs, found)) / len(found)
        lines.append(f"{name:46}{len(found):5}{absolute:21.1%}{sum(found) / len(found):+12.1%}")
    return lines
