"""The page on Kim et al. (2018): tables, readings, and all of its files."""

import csv
import json
from io import StringIO

import msgspec
import pytest

from reports.readings import ReadingRows
from reports.swap2018.readings import READINGS, SwapReading, compare_readings
from reports.swap2018.report import paper_report, readme
from reports.swap2018.tables import STAGGERED, SWAP, TABLE_I, Cell, line_of_table_1, table_1_rows, throughput_rows
from tests.toy import ROOT
from vdnnsim.claims.check import ClaimRow
from vdnnsim.claims.claim import Claim, Verdict, read_claims
from vdnnsim.claims.swap2018.runs import METRICS, NONE, VGG, ServerRuns
from vdnnsim.hardware.profile import find_profile, read_profile

BATCHES = {"Table II": (2, 120), "Table III": (4, 110)}


def cell(table: str, policy: str, images_per_s: float, *, fits: bool = True, paper: float | None = 50.0) -> Cell:
    gpus, batch = BATCHES[table]
    return Cell(table, VGG, gpus, policy, batch, paper, images_per_s, fits)


TABLE_1 = tuple(
    Cell("Table I", network, 1, policy, 2 * batch, paper, 10.0, fits=True)
    for (network, policy), (batch, paper) in TABLE_I.items()
)
TABLES = (
    *TABLE_1,
    cell("Table II", NONE, 100.0),
    cell("Table II", SWAP, 60.0, paper=40.0),
    cell("Table II", STAGGERED, 90.0, fits=False, paper=60.0),
    cell("Table III", NONE, 50.0, paper=None),
    cell("Table III", SWAP, 30.0),
    cell("Table III", STAGGERED, 45.0),
)


def row(number: str, verdict: Verdict, simulated: str, reason: str = "") -> ClaimRow:
    return ClaimRow(number, "IV", "throughput", "67%", simulated, "+1%", verdict, Verdict.REPRODUCED, reason, "")


ROWS = (
    row("s-5", Verdict.REPRODUCED, "68%"),
    row("s-7", Verdict.NOT_REPRODUCED, "12%", "a reason"),
    row("t-2.120_swap", Verdict.REPRODUCED, "70%"),
    row("t-3.110_swap", Verdict.NOT_REPRODUCED, "10%"),
)


def test_tables_of_the_page() -> None:
    """80 images in 80 / 62.95 s, 128 in 128 / 73.93 s: 9.594 ms an image, 0.5033 s besides."""
    per_image_s, rest_s = line_of_table_1()
    assert (per_image_s, rest_s) == pytest.approx((9.594e-3, 0.5033), abs=1e-4)
    taken = {each.framework_s_per_byte for each in READINGS if each.framework_s_per_byte}
    assert taken == {rest_s / (4 * 138_357_544)}
    # Table 1 has the ratio of batches.
    assert (VGG, NONE, "80", "160", "2.00", "62.95", "10.00") in table_1_rows(TABLE_1)
    # 90 over 60 images/s is a gain of 1.5 here, as 60 over 40 in the paper.
    (second,), (third,) = (throughput_rows(TABLES, name) for name in ("Table II", "Table III"))
    assert second == ("120", "50.00", "100.00", "40.00", "60.00", "60.00", "90.00, does not fit", "1.500", "1.500")
    assert third[:3] == ("110", "out of memory", "50.00")


def test_claims_of_the_text_and_ratios_of_the_tables_are_counted_separately() -> None:
    page = readme(TABLES, ROWS, [], [("it | scales", "scaling.png")]).decode()
    assert page.startswith("# Several GPUs that swap")
    assert "1 of 2 claims reproduced, each with all of its numbers; of the 2 ratios of Tables II and III, 1 " in page
    assert "Two GPUs lose 40.0% of their speed when they swap as vDNN would, and\n10.0% when" in page
    assert "| t-3.110_swap | IV | throughput | 67% | 10% | +1% | **not reproduced** |" in page
    assert "- `s-7` (**not reproduced**): a reason" in page
    assert "![it \\| scales](scaling.png)" in page
    # Of these rows s-5 and s-7 have a column; a policy refused s-7.
    ring = ReadingRows(SwapReading("gradients: ring", "How?"), (ROWS[0], None, *ROWS[2:]))
    page = readme(TABLES, ROWS, [ring], []).decode()
    assert "### Why" not in readme(TABLES, (ROWS[0], ROWS[2]), [], []).decode(), "no reason, no heading"
    assert "| default | **68%** | 12% | 1 of 2 |" in page
    assert "| `gradients: ring` | **68%** | - | 1 of 2 |" in page
    assert "- `gradients: ring`: How?" in page


FILE = read_claims("swap2018")
PROFILES = [find_profile(name, ROOT) for name in ("p100_x2", "p100_x4", "titan_xp")]
ALEXNET = msgspec.structs.replace(
    FILE.claims[0],
    id="s-7",
    metric="throughput_ratio",
    networks=("alexnet(16)",),
    policy="swap(tensorflow, interval=4)",
    baseline="none(tensorflow)",
    hardware="p100_x2",
    gpus=2,
    unit="",
)


def fresh() -> ServerRuns:
    return ServerRuns({path.stem: read_profile(path) for path in PROFILES})


@pytest.mark.usefixtures("in_this_process")
def test_readings_check_every_claim_each_with_replays_of_its_own() -> None:
    """To swap all CONV outputs of AlexNet is slower than every fourth; pages refuse memory with addresses."""
    paged: Claim = msgspec.structs.replace(ALEXNET, id="s-8", policy="page_migration(p)")
    best_fit = next(each for each in READINGS if "best_fit" in each.name).memory_model
    planned = SwapReading("memory_model: planned", memory_model=best_fit)
    everything = SwapReading("interval: 1", options={"swap": {"interval": 1}})

    compared = compare_readings((ALEXNET, paged), fresh(), "p100_x2", (everything, planned))
    slower, refused = (each.rows for each in compared)
    default = METRICS.check(ALEXNET, fresh(), "p100_x2")
    assert slower[0] is not None
    assert float(slower[0].simulated.rstrip("%")) < float(default.simulated.rstrip("%"))
    assert refused[1] is None
    assert len({reading.name for reading in READINGS}) == len(READINGS)
    assert all(reading.question for reading in READINGS)


@pytest.mark.thorough
@pytest.mark.usefixtures("in_this_process", "no_labels_overlap")
def test_one_command_makes_the_whole_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """On AlexNet instead of VGG it takes seconds: nine pictures, three tables, the page, the manifest."""
    monkeypatch.setattr("reports.swap2018.report.VGG", "alexnet")
    monkeypatch.setattr("reports.swap2018.tables.VGG", "alexnet")
    few = msgspec.structs.replace(FILE, claims=(ALEXNET,))
    runs = fresh()
    rows = [METRICS.check(ALEXNET, runs, "p100_x2")]

    readings = (SwapReading("interval: 1", "Which?", {"swap": {"interval": 1}}),)
    files = paper_report(few, rows, runs, PROFILES, readings=readings)

    assert set(files) == {
        *("README.md", "claims.csv", "readings.csv", "run.json", "tables.csv", "scaling.png"),
        *(
            f"{gpus}gpus_{shown}_{policy}.png"
            for gpus in (2, 4)
            for shown in ("gpus", "links")
            for policy in ("swap", "staggered_swap")
        ),
    }
    (effect,) = csv.DictReader(StringIO(files["readings.csv"].decode()))
    assert (effect["reading"], effect["id"]) == ("interval: 1", "s-7")
    tables = list(csv.DictReader(StringIO(files["tables.csv"].decode())))
    assert [row["table"] for row in tables] == ["Table I"] * 4 + ["Table II"] * 12 + ["Table III"] * 12
    inputs = json.loads(files["run.json"])["inputs"]
    assert {"p100_x2.yaml", "p100_x4.yaml", "titan_xp.yaml", "p100_x2.fit.csv"} <= inputs.keys()
