"""The report on Jin et al. (2018): simulated Tables 1, 5 to 8 and Figures 9 to 14, claims, readings.

Files: README.md, table1.csv, table5.csv to table8.csv, claims.csv, readings.csv, figureNN.png and .csv, run.json. Equal
input gives equal bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from reports.layrub2018.figures import paper_figures
from reports.layrub2018.readings import Alternative, compare_readings, mxnet_without_memonger
from reports.layrub2018.tables import HYBRID, NEAR, TABLES, Record
from reports.page import figure_files, page, report_files
from vdnnsim.claims.check import ClaimCount, ClaimRow, is_met
from vdnnsim.claims.claim import ClaimsFile, read_claims
from vdnnsim.claims.layrub2018.metrics import ITERATIONS, at_paper_pace, one_node_iteration_s
from vdnnsim.claims.layrub2018.runs import LayrubCase, LayrubRuns
from vdnnsim.report.result_table import csv_text
from vdnnsim.units import MIB

_HANG_ON_A_READING: Final = ("l-2", "l-9", "l-15")
_AT_OWN_PACE: Final = "l-15.layrub"
_ABSOLUTE_S: Final[Mapping[str, float]] = {"resnet1001": 712.2, "resnet1517": 1148.86}
"""Seconds of 20 iterations under Layrub of networks that no base of Table 5 can train; nothing was set by them."""


def paper_report(
    file: ClaimsFile,
    rows: Sequence[ClaimRow],
    runs: LayrubRuns,
    profiles: Sequence[Path],
    progress: Callable[[str], object] = str,
) -> dict[str, bytes]:
    """Return the content of every file of the report by its name; `profiles` are the files of its machines."""
    tables: dict[str, list[Record]] = {}
    for name, table in TABLES.items():
        progress(name)
        tables[name] = list(table(runs))
    progress("other readings")
    readings = compare_readings(runs)
    progress("figures")
    figures = paper_figures(runs, tables["table5"])
    texts = {
        f"{name}.csv": csv_text(tuple(table[0]), [tuple(row.values()) for row in table])
        for name, table in tables.items()
    } | {"readings.csv": csv_text(Alternative._fields, readings)}
    paced = next(each.alternative for each in readings if each.id == _AT_OWN_PACE)
    readme = page(
        "layrub2018/page.md.j2",
        rows,
        stated={claim.id: claim.expected for claim in read_claims("layrub2018").claims},
        of={row.id: row for row in rows},
        hang_on_a_reading=_HANG_ON_A_READING,
        paced=paced,
        figures=figures,
        readings=readings,
        mxnet_mib=mxnet_without_memonger(runs) / MIB,
        deeper=_deeper(runs),
        near=NEAR,
        tightest=next(each for each in tables["table6"] if (each["hardware"], each["network"]) == ("k40m", "resnet50")),
        one_node_s=[
            one_node_iteration_s(LayrubCase("k40m", row["network"], row["batch_size"])) for row in tables["table8"]
        ],
        **tables,
        **_counts(file, rows, paced),
        **_of_tables(tables),
    )
    return report_files(file, profiles, rows, texts) | figure_files(figures) | {"README.md": readme}


def _counts(file: ClaimsFile, rows: Sequence[ClaimRow], paced: str) -> Mapping[str, int]:
    """Return the numbers of claims met without those that depend on a reading, and at another pace; and of Table 5."""
    stated = next(claim for claim in file.claims if claim.id == _AT_OWN_PACE)
    single = [row for row in rows if row.claim_id == "t-5" and row.id.endswith(".layrub") and ".mean." not in row.id]
    return {
        "plainly": ClaimCount.of([row for row in rows if row.claim_id not in _HANG_ON_A_READING]).reproduced,
        "held": ClaimCount.of(rows).reproduced - (not is_met(stated, float(paced.rstrip("%")) / 100)),
        "missed": sum(not row.is_met for row in single),
        "single": len(single),
    }


def _of_tables(tables: Mapping[str, list[Record]]) -> Mapping[str, object]:
    """Return how far off Table 6 is by system, and means and single cells of Table 5."""
    errors = {
        system: [row["error"] for row in tables["table6"] if row["system"] == system and row["error"] is not None]
        for system in ("Caffe", "MXNet", "Layrub")
    }
    below = [-error for error in errors["Layrub"]]
    layrub, mxnet = ([row for row in tables["table5"] if row["system"] == system] for system in ("Layrub", "MXNet"))
    return {
        "ranges": ", ".join(f"{system} by {min(found):+.0%} to {max(found):+.0%}" for system, found in errors.items()),
        "below": f"{min(below):.0%} to {max(below):.0%}",
        "means": {
            "layrub": fmean(row["overhead"] for row in layrub),
            "mxnet": fmean(row["overhead"] for row in mxnet),
            "own_layrub": fmean(row["own_overhead"] for row in layrub),
        },
        "layrub": {row["network"]: f"{row['overhead']:.0%} for {row['paper_overhead']:.0%}" for row in layrub},
    }


def _deeper(runs: LayrubRuns) -> str:
    """Return how long 20 iterations of `_ABSOLUTE_S` take at the pace of ResNet-50's base, beside the paper's."""
    slowdown = at_paper_pace(runs, LayrubCase("k40m", "resnet50", 32), "caffe").slowdown
    cases = {network: LayrubCase("k40m", network, 32, slowdown) for network in _ABSOLUTE_S}
    return " and ".join(
        f"{ITERATIONS * runs.iteration_s(cases[name], HYBRID):.0f} s of {name} for {paper_s:.0f} s"
        for name, paper_s in _ABSOLUTE_S.items()
    )
