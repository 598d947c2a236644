"""Fits the parameters of the cost model to published measurements: `python -m vdnnsim.cost.fit PROFILE.yaml`.

Reads the rows beside the profile (`PROFILE.fit.csv`), prints observed and predicted time of each, the mean absolute
error of each group, and the fitted parameters beside those that the profile states. It writes no file: what it prints
is what a person puts into the profile.

Minimized is the sum over rows of rho(w ln(predicted / observed)), rho the soft L1 loss with its bend at 5 %, so that a
row that the model cannot reach does not bend the others. w^2 is the weight of the row's group over the rows in it: the
few whole networks must count beside many single layers. What no row isolates has a prior: a value, and the spread (in
ln) within which rows may move it. All parameters are positive, fractions at most 1.

Known limitations: the rows of cuDNN R2 stand for implicit GEMM without a workspace (R2's own data gradient and weight
gradient used none; its forward may have used a small one), and those of R3 for R4 without FFT tiling.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final

from vdnnsim.cost.fit_rows import FitRow, read_fit_rows
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.parameters import CostParameters
from vdnnsim.element_type import ElementType
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Server

START: Final = CostParameters(
    kernel_overhead_s=10e-6,
    stream_dram_fraction=0.75,
    pool_dram_fraction=0.6,
    gemm_flop_fraction=0.8,
    implicit_forward_flop_fraction=0.6,
    implicit_backward_data_flop_fraction=0.45,
    implicit_backward_weights_flop_fraction=0.5,
    precomp_forward_flop_fraction=0.8,
    precomp_backward_data_flop_fraction=0.8,
    precomp_backward_weights_flop_fraction=0.75,
    tile_load_flop=10.0,
    tile_start_depth=20.0,
    idle_tail_waves=0.5,
    scatter_depth=30.0,
    partial_sums_s=50e-6,
    inserted_zero_fraction=0.5,
    implicit_dram_fraction=0.75,
    fft_flop_fraction=0.7,
    fft_dram_fraction=0.5,
    fft_tiling_dram_fraction=0.5,
)
"""Where the fit starts, and the centre of each prior."""

PRIOR_SPREADS: Final[Mapping[str, float]] = {
    "kernel_overhead_s": 0.8,
    "stream_dram_fraction": 0.3,
    "pool_dram_fraction": 0.6,
    "gemm_flop_fraction": 0.5,
    "idle_tail_waves": 1.6,
    "implicit_dram_fraction": 0.5,
    "fft_flop_fraction": 1.3,
    "fft_tiling_dram_fraction": 2.0,
}
"""Spread of each prior in ln, for a row of weight 1."""

GROUP_WEIGHTS: Final[Mapping[str, float]] = {
    "network R4": 16,
    "network R2": 8,
    "layer R2": 6,
    "layer R3": 2,
    "layer im2col": 2,
    "DeepBench forward": 5,
    "DeepBench data": 3,
    "DeepBench weights": 3,
    "DeepBench weights 1x1": 1,
}
"""Weight of each group of rows, divided among its rows."""

_NAMES: Final = tuple(field.name for field in fields(CostParameters))
_LOSS_BEND: Final = 0.05
_UNBOUNDED: Final = 1e3


def fit_parameters(server: Server, rows: Sequence[FitRow]) -> CostParameters:
    """Return the parameters that suit the rows with role `fit` best; the same rows give the same parameters."""
    # Only the fit needs SciPy, the extra `fit`.
    from scipy.optimize import least_squares

    used = [row for row in rows if row.role == "fit"]
    sizes = {group: sum(row.group == group for row in used) for group in GROUP_WEIGHTS}
    weights = [math.sqrt(GROUP_WEIGHTS[row.group] / sizes[row.group]) for row in used]
    start = [math.log(value) for value in asdict(START).values()]

    def residuals(point: Iterable[float]) -> list[float]:
        logs = [float(log) for log in point]
        machine = machine_of(server, CostParameters(**dict(zip(_NAMES, map(math.exp, logs), strict=True))))
        priors = [
            (log - centre) / PRIOR_SPREADS[name]
            for name, log, centre in zip(_NAMES, logs, start, strict=True)
            if name in PRIOR_SPREADS
        ]
        errors = [
            weight * math.log(row.predicted_s(machine) / row.observed_s)
            for row, weight in zip(used, weights, strict=True)
        ]
        return priors + errors

    lower = [math.log(value) - math.log(_UNBOUNDED) for value in asdict(START).values()]
    upper = [
        0.0 if name.endswith("_fraction") else log + math.log(_UNBOUNDED)
        for name, log in zip(_NAMES, start, strict=True)
    ]
    solution = least_squares(
        residuals, start, bounds=(lower, upper), loss="soft_l1", f_scale=_LOSS_BEND, diff_step=1e-3
    )
    return CostParameters(**{name: math.exp(log) for name, log in zip(_NAMES, solution.x.tolist(), strict=True)})


def machine_of(server: Server, parameters: CostParameters) -> Machine:
    """Return the machine of a server in float32 with these parameters instead of the profile's."""
    element_type = ElementType.FLOAT32
    return Machine(
        parameters=parameters,
        flop_per_s=server.gpu.flop_per_s[element_type],
        dram_bytes_per_s=server.gpu.dram_bytes_per_s,
        multiprocessors=server.gpu.multiprocessors,
        element_bytes=element_type.nbytes,
    )


def relative_error(row: FitRow, machine: Machine) -> float:
    """Return (predicted - observed) / observed."""
    return row.predicted_s(machine) / row.observed_s - 1


def report(rows: Sequence[FitRow], machine: Machine, stated: Mapping[str, float]) -> str:
    """Return the three tables: rows, groups, parameters."""
    head = f"{'role':9}{'group':22}{'subject':13}{'phase':17}{'algorithms':24}"
    lines = [f"{head}{'observed':>11}{'predicted':>11}{'error':>8}"]
    lines += [
        f"{row.role:9}{row.group:22}{row.subject:13}{row.phase.value:17}{row.algorithms:24}"
        f"{row.observed_s * 1e3:8.3f} ms{row.predicted_s(machine) * 1e3:8.3f} ms{relative_error(row, machine):+8.1%}"
        for row in rows
    ]
    lines += ["", f"{'role':9}{'group':22}{'rows':>5}{'mean absolute error':>21}{'mean error':>12}"]
    for role, group in sorted({(row.role, row.group) for row in rows}):
        errors = [relative_error(row, machine) for row in rows if (row.role, row.group) == (role, group)]
        absolute = sum(map(abs, errors)) / len(errors)
        lines.append(f"{role:9}{group:22}{len(errors):5}{absolute:21.1%}{sum(errors) / len(errors):+12.1%}")
    lines += ["", f"{'parameter':42}{'fitted':>12}{'profile':>12}"]
    for name, value in asdict(machine.parameters).items():
        lines.append(f"{name:42}{value:12.4g}{stated[name]:12.4g}" if name in stated else f"{name:42}{value:12.4g}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit the profile named on the command line and print the report."""
    parser = argparse.ArgumentParser(prog="python -m vdnnsim.cost.fit", description="fit a profile's cost model")
    parser.add_argument("profile", type=Path, help="the profile; its rows stand beside it in PROFILE.fit.csv")
    profile: Path = parser.parse_args().profile
    server = read_profile(profile)
    rows = read_fit_rows(profile.with_suffix(".fit.csv"))
    machine = machine_of(server, fit_parameters(server, rows))
    sys.stdout.write(report(rows, machine, server.cost_model))


if __name__ == "__main__":
    main()
