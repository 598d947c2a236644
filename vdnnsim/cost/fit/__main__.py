"""The command that fits profiles and prints rows, errors by group, and fitted parameters beside the stated ones.

It writes no file: the parameters are put into the profile by hand.
"""

import argparse
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from vdnnsim.cost.fit.efficiency import EFFICIENCY
from vdnnsim.cost.fit.hosts import host_report
from vdnnsim.cost.fit.least_squares import FitRow, FittedModel
from vdnnsim.cost.fit.maxwell import MAXWELL
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Server

MODELS: Final[Mapping[str, FittedModel]] = {"maxwell": MAXWELL, "efficiency": EFFICIENCY}


def main() -> None:
    """Fit the files of the command line and print the reports."""
    parser = argparse.ArgumentParser(prog="python -m vdnnsim.cost.fit", description="fit a profile's cost model")
    what = "a profile, its rows beside it in PROFILE.fit.csv; or hosts.fit.csv"
    parser.add_argument("files", type=Path, nargs="+", help=what)
    parser.add_argument("--cross-validate", action="store_true", help="also leave out each fold in turn")
    arguments = parser.parse_args()
    for path in arguments.files:
        lines = host_report(path) if path.suffix == ".csv" else fit_report(path, arguments.cross_validate)
        sys.stdout.writelines(f"{line}\n" for line in lines)


def fit_report(profile: Path, cross_validate: bool) -> Iterator[str]:  # noqa: FBT001 - the option
    """Yield the tables of the fit of a profile: rows, errors by group, parameters, and errors of left out rows."""
    server = read_profile(profile)
    model = MODELS[server.cost_model_kind]
    rows = model.read_rows(profile.with_suffix(".fit.csv"))
    fitted = model.fit(server, rows)
    machine = model.machine(server, fitted)
    errors = [(row, row.relative_error(machine)) for row in rows]
    yield from (_rows_text(errors), "", errors_by_group(errors).to_string(float_format="{:+.1%}".format), "")
    stated = {name: server.cost_model[name] for name in fitted}
    yield pd.DataFrame({"fitted": fitted, "profile": stated}).to_string(float_format="{:.4g}".format)
    if cross_validate:
        yield from _left_out(model, server, rows)


def errors_by_group(errors: Sequence[tuple[FitRow, float]]) -> pd.DataFrame:
    """Return the number of rows, the mean absolute and the mean relative error, by role and group."""
    table = pd.DataFrame([(row.role, row.group, error) for row, error in errors], columns=["role", "group", "error"])
    table["absolute"] = table.error.abs()
    by_group = table.groupby(["role", "group"])
    return by_group.agg(rows=("error", "size"), mean_absolute_error=("absolute", "mean"), mean_error=("error", "mean"))


def _rows_text(errors: Sequence[tuple[FitRow, float]]) -> str:
    table = [
        {
            "role": row.role,
            "group": row.group,
            "kernel": row.subject,
            "phase": row.phase.value,
            "type": row.element_type.value,
            "algorithms": row.algorithms,
            "observed_us": f"{row.observed_s * 1e6:.1f}",
            "predicted_us": f"{(1 + error) * row.observed_s * 1e6:.1f}",
            "error": f"{error:+.1%}",
        }
        for row, error in errors
    ]
    text: str = pd.DataFrame(table).to_string(index=False)
    return text


def _left_out(model: FittedModel, server: Server, rows: Sequence[FitRow]) -> Iterator[str]:
    """Yield the errors of rows left out by fold, and by source where there are several, and their weighted total."""
    folds: dict[str, Callable[[FitRow], Hashable]] = {"shape or network": lambda row: row.fold}
    if model.by_source and len({row.source for row in rows if row.role == "fit"}) > 1:
        folds["source"] = lambda row: row.source
    for name, fold in folds.items():
        table = errors_by_group(model.left_out_errors(server, rows, fold))
        weights = [model.group_weights.get(group, 1) for _, group in table.index]
        total = np.average(table.mean_absolute_error, weights=weights)
        yield from ("", f"left out, by {name}: {total:.2%}", table.to_string(float_format="{:+.1%}".format))


if __name__ == "__main__":
    main()
