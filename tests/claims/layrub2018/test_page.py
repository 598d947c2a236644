"""The page on Jin et al. (2018): tables and figures, and the rows of Table 6 that it shows."""

import pytest

from reports.layrub2018.report import paper_report
from tests.toy import ROOT
from vdnnsim.claims.claim import read_claims
from vdnnsim.claims.layrub2018.metrics import METRICS
from vdnnsim.claims.layrub2018.runs import LayrubRuns

FILE = read_claims("layrub2018")


def test_table_6_has_every_figure_and_every_cell_that_decides_what_fits() -> None:
    """Table 6 has 24 figures; of its 48 cells 7 lie within 15 % of the capacity, one of them without a figure."""
    rows = [row for row in FILE.claims if row.claim_id == "t-6"]
    fits = [row for row in rows if row.metric == "fits"]
    assert len(rows) - len(fits) == 24
    assert len(fits) == 48 - 7


@pytest.mark.thorough
@pytest.mark.usefixtures("no_labels_overlap")
def test_the_page_has_every_table_and_figure(layrub_runs: LayrubRuns) -> None:
    """Tables 1 and 5 to 8, Figures 9 to 14 with their numbers; a cell that fits only here, or only there, is marked."""
    rows = [METRICS.check(claim, layrub_runs, FILE.hardware) for claim in FILE.claims]

    files = paper_report(FILE, rows, layrub_runs, tuple(FILE.find_profiles(ROOT).values()))

    figures = {f"figure{number:02}.{ending}" for number in range(9, 15) for ending in ("png", "csv")}
    tables = {f"table{number}.csv" for number in (1, 5, 6, 7, 8)}
    assert set(files) == {"README.md", "claims.csv", "readings.csv", "run.json"} | figures | tables
    page = files["README.md"].decode()
    assert "12 of 19 claims reproduced" in page
    assert all(f"]({name})" in page for name in figures if name.endswith("png"))
    assert "**fits only here**" not in page
    assert page.count("**fits only there**") == 1
    assert all(files[name].startswith(b"\x89PNG") for name in figures if name.endswith("png"))
    assert len(files["table6.csv"].decode().splitlines()) == 1 + 48
