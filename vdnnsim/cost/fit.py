"""Fits the parameters of cost models to published measurements: `python -m vdnnsim.cost.fit PROFILE.yaml...`.

Profiles of `kind: efficiency` are fitted by `vdnnsim.cost.efficiency_fit`; what follows is of `kind: maxwell`.

Reads the rows beside the profile (`PROFILE.fit.csv`), prints observed and predicted time of each, the mean absolute
error of each group, and the fitted parameters beside those that the profile states. It writes no file: what it prints
is what a person puts into the profile.

Minimized is the sum over rows of rho(w ln(predicted / observed)), rho the soft L1 loss with its bend at 5 %, so that a
row that the model cannot reach does not bend the others. w^2 is the weight of the row's group over the rows in it: the
few whole networks must count beside many single layers. All parameters are positive, fractions at most 1. Those that
the profile assumes are held there: rows cannot tell them from the others (the profile says why for each). Where the
profile states parameters of Winograd, its library has it, and they are fitted too.

`--cross-validate` adds the errors of rows that are left out of the fit in turn (`vdnnsim.cost.cross_validation`).
Structure was chosen by that error and by physics, never by the held-out rows: parameters were merged whose separate
values change it by less than a hundredth of itself. It is 9.9 %; the 20 parameters of an earlier form had 11.9 %.

DeepBench's weight gradients name no algorithm. `DeepBench weights 3x3` holds those of 3 x 3 filters with stride 1 that
reach less than 5 TFLOP/s: one of the faster ones exceeds the peak of the GPU, so cuDNN 5 had a Winograd form, which
cuDNN 4 has not, and no weight gradient of another filter reaches 5. Of two measurements of one shape only the slower is
taken. `DeepBench FFT` holds the two forward rows that name that algorithm.

Rows of cuDNN 6 on Pascal (`DeepBench 3x3`, `1x1` and `others`) were measured with the fastest algorithm that cudnnFind
found, and are predicted by the fastest that the model has. The sheets of all cards of 2017 name the same forward
algorithms row for row, so the names are not taken. No network computes data gradients of three channels or fewer, which
are those of first layers; the model, whose tiles are 32 rows and more, has them half too slow, and they are held out.
Cross-validated errors: 17.6 % on the Titan Xp, 16.0 % on the P100; of 3 x 3 filters alone 14 % on both.

Rows with role `other_version` are printed and never fitted: single layers under cuDNN R3. The model is of cuDNN 4, and
in the same repository whole networks run 14 to 18 % slower on R3, more than the errors of the fit.

Known limitations: the rows of cuDNN R2 stand for implicit GEMM without a workspace (R2's own data gradient and weight
gradient used none; its forward may have used a small one). Below 5 TFLOP/s single rows may still be Winograd.
"""

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from vdnnsim.cost.cross_validation import cross_validation_report, error_lines, left_out_errors, shape_folds
from vdnnsim.cost.efficiency_fit import START, efficiency_report, fit_efficiencies, fit_logarithms, left_out_report
from vdnnsim.cost.efficiency_rows import read_efficiency_rows
from vdnnsim.cost.fit_rows import FitRow, read_fit_rows
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.model import EFFICIENCY
from vdnnsim.cost.parameters import CostParameters
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.units import ElementType

_UNBOUNDED: Final = 1e3


def fit_parameters(server: Server, rows: Sequence[FitRow]) -> CostParameters:
    """Return the parameters that suit the rows with role `fit` best; the same rows give the same parameters.

    Rows of another role are left alone: `held_out` checks the model, `other_version` was measured with another library.
    """
    used = [row for row in rows if row.role == "fit"]
    sizes = Counter(row.group for row in used)
    weights = [math.sqrt(START.group_weights[row.group] / sizes[row.group]) for row in used]
    held = assumed(server)
    start = {name: first for name, first in START.maxwell.items() if name in server.cost_model and name not in held}

    def residuals(found: Mapping[str, float]) -> list[float]:
        machine = machine_of(server, CostParameters(**held, **found))
        return [
            weight * math.log(row.predicted_s(machine) / row.observed_s)
            for row, weight in zip(used, weights, strict=True)
        ]

    return CostParameters(**held, **fit_logarithms(start, residuals, _UNBOUNDED, ftol=1e-8))


def assumed(server: Server) -> dict[str, float]:
    """Return the parameters of the cost model that the profile of a server assumes, which the fit leaves alone."""
    paths = {figure.path for figure in server.figures if figure.origin is Origin.ASSUMED}
    return {name: value for name, value in server.cost_model.items() if f"cost_model.{name}" in paths}


def machine_of(server: Server, parameters: CostParameters) -> Machine:
    """Return the machine of a server in float32 with these parameters instead of the profile's."""
    return Machine.of_server(server, ElementType.FLOAT32, parameters)


def report(rows: Sequence[FitRow], machine: Machine, stated: Mapping[str, float]) -> str:
    """Return the three tables: rows, groups, parameters."""
    head = f"{'role':14}{'group':22}{'subject':13}{'phase':17}{'algorithms':24}"
    lines = [f"{head}{'observed':>11}{'predicted':>11}{'error':>8}"]
    lines += [
        f"{row.role:14}{row.group:22}{row.subject:13}{row.phase.value:17}{row.algorithms:24}"
        f"{row.observed_s * 1e3:8.3f} ms{row.predicted_s(machine) * 1e3:8.3f} ms{row.relative_error(machine):+8.1%}"
        for row in rows
    ]
    errors: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        errors[f"{row.role:14}{row.group}"].append(row.relative_error(machine))
    lines += ["", *error_lines(f"{'role':14}{'group':22}", errors)]
    lines += ["", f"{'parameter':42}{'fitted':>12}{'profile':>12}"]
    for name, value in asdict(machine.parameters).items():
        lines.append(f"{name:42}{value:12.4g}{stated[name]:12.4g}" if name in stated else f"{name:42}{value:12.4g}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit the profiles named on the command line and print the reports."""
    parser = argparse.ArgumentParser(prog="python -m vdnnsim.cost.fit", description="fit a profile's cost model")
    parser.add_argument("profiles", type=Path, nargs="+", help="their rows stand beside them in PROFILE.fit.csv")
    parser.add_argument("--cross-validate", action="store_true", help="also leave out each fold in turn")
    arguments = parser.parse_args()
    for profile in arguments.profiles:
        server = read_profile(profile)
        made = _efficiency if server.cost_model_kind == EFFICIENCY else _maxwell
        sys.stdout.write(made(server, profile.with_suffix(".fit.csv"), cross_validate=arguments.cross_validate))


def _maxwell(server: Server, path: Path, *, cross_validate: bool) -> str:
    rows = read_fit_rows(path)
    text = report(rows, machine_of(server, fit_parameters(server, rows)), server.cost_model)
    if not cross_validate:
        return text
    errors = left_out_errors(rows, shape_folds, lambda kept: machine_of(server, fit_parameters(server, kept)))
    return f"{text}\n{cross_validation_report(errors, START.group_weights)}"


def _efficiency(server: Server, path: Path, *, cross_validate: bool) -> str:
    rows = read_efficiency_rows(path)
    text = efficiency_report(server, rows, fit_efficiencies(server, rows))
    return f"{text}\n{left_out_report(server, rows)}" if cross_validate else text


if __name__ == "__main__":
    main()
