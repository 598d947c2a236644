"""Errors of steps that `machines` and `check` state, `hw_profiles/checked.csv`, as the reports have them.

After a report is drawn anew, `pytest --update-golden` writes them.
"""

from collections import defaultdict
from statistics import fmean

from reports.measured.models import SUBJECTS
from tests.command_line import csv_rows
from tests.toy import ROOT
from vdnnsim.claims.public2026.measurements import COMPILED, PLAIN_TRANSFORMERS
from vdnnsim.cost.fit.least_squares import FitRow
from vdnnsim.cost.fit.maxwell import machine_of, read_fit_rows
from vdnnsim.files.packaged import PROFILES, shipped_folder
from vdnnsim.hardware.profile import read_profile

CHECKED = shipped_folder(PROFILES) / "checked.csv"
TRANSFORMERS = (*PLAIN_TRANSFORMERS, "timm:cait", "timm:xcit", "reports/measured/language_models.py")
OF_OTHERS = "reports/public2026/step_times.csv: rows that nothing was fitted to"
OF_FIT = "hw_profiles/titan_x_maxwell.fit.csv: steps of networks whose role is held_out"
OUR_OWN = "reports/measured/predictions.csv: steps that the GPU decides; nothing was fitted to them"

Kind = tuple[str, ...]


def of_others() -> dict[Kind, list[float]]:
    """Return the errors of published steps by card, mode, precision, kind of network, execution and source."""
    found = defaultdict[Kind, list[float]](list)
    for row in csv_rows(ROOT / "reports" / "public2026" / "step_times.csv"):
        if row["fitted"] == "false" and not row["left_out"]:
            network = "transformer" if row["network"].startswith(TRANSFORMERS) else "convolutional"
            execution = "compiled" if row["series"] == COMPILED else "eager"
            kind = row["hardware"], row["mode"], row["precision"], network, execution, OF_OTHERS
            found[kind].append(float(row["error_ratio"]))
    return found


def our_own() -> dict[Kind, list[float]]:
    """Return those of our own measurements."""
    found = defaultdict[Kind, list[float]](list)
    for row in csv_rows(ROOT / "reports" / "measured" / "predictions.csv"):
        if row["host_decides"] == "false":
            network = "convolutional" if SUBJECTS[row["model"]].kind == "convolutional" else "transformer"
            kind = "h100_sxm", "training", "amp_bfloat16", network, row["execution"], OUR_OWN
            found[kind].append(float(row["simulated_s"]) / float(row["measured_s"]) - 1)
    return found


def of_titan_x() -> dict[Kind, list[float]]:
    """Return those of the networks that the fit of the Titan X left out: phases of one group are a step."""
    profile = shipped_folder(PROFILES) / "titan_x_maxwell.yaml"
    machine, steps = machine_of(read_profile(profile), {}), defaultdict[Kind, list[FitRow]](list)
    for row in read_fit_rows(profile.with_suffix(".fit.csv")):
        if row.role == "held_out":
            steps[row.group, row.subject].append(row)
    assert {len(each) for each in steps.values()} == {3}
    errors = [
        sum(x.predicted_s(machine) for x in each) / sum(x.observed_s for x in each) - 1 for each in steps.values()
    ]
    return {("titan_x_maxwell", "training", "float32", "convolutional", "eager", OF_FIT): errors}


def test_stated_errors_are_those_of_steps_that_nothing_was_fitted_to(*, update_golden: bool) -> None:
    head, *stated = CHECKED.read_text(encoding="utf-8").splitlines()
    rows = [
        f"{','.join(kind[:-1])},{len(errors)},{fmean(map(abs, errors)):.4f},{fmean(errors):.4f},"
        f"{max(errors, key=abs):.4f},{kind[-1]}"
        for kind, errors in {**of_others(), **our_own(), **of_titan_x()}.items()
    ]
    expected = sorted(rows)
    if update_golden:
        CHECKED.write_text("\n".join([head, *expected, ""]), encoding="utf-8")
    else:
        assert stated == expected
