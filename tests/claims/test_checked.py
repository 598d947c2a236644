"""Errors of steps that `machines` and `check` state, `hw_profiles/checked.csv`, as the reports have them.

After a report is drawn anew, `pytest --update-golden` writes them.
"""

from collections import defaultdict
from statistics import fmean

from reports.measured.models import SUBJECTS
from tests.command_line import csv_rows
from tests.toy import ROOT
from vdnnsim.claims.public2026.measurements import COMPILED, PLAIN_TRANSFORMERS
from vdnnsim.files.packaged import PROFILES, shipped_folder

CHECKED = shipped_folder(PROFILES) / "checked.csv"
TRANSFORMERS = (*PLAIN_TRANSFORMERS, "timm:cait", "timm:xcit", "reports/measured/language_models.py")
OF_OTHERS = "reports/public2026/step_times.csv: rows that nothing was fitted to"
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


def test_stated_errors_are_those_of_steps_that_nothing_was_fitted_to(*, update_golden: bool) -> None:
    """Those of the Titan X, of an earlier fit, are in its table of rows."""
    head, *stated = CHECKED.read_text(encoding="utf-8").splitlines()
    kept = [line for line in stated if line.startswith("titan_x_maxwell,")]
    rows = [
        f"{','.join(kind[:-1])},{len(errors)},{fmean(map(abs, errors)):.4f},{fmean(errors):.4f},"
        f"{max(errors, key=abs):.4f},{kind[-1]}"
        for kind, errors in {**of_others(), **our_own()}.items()
    ]
    expected = sorted([*rows, *kept])
    if update_golden:
        CHECKED.write_text("\n".join([head, *expected, ""]), encoding="utf-8")
    else:
        assert stated == expected
