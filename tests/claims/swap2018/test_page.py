"""The page on Kim et al. (2018): tables, readings, and all of its files."""

import csv
import json
from io import StringIO

import msgspec
import pytest

from reports.swap2018.readings import READINGS, SwapReading, compare_readings
from reports.swap2018.report import paper_report
from tests.toy import ROOT
from vdnnsim.claims.claim import Claim, read_claims
from vdnnsim.claims.swap2018.runs import METRICS, ServerRuns
from vdnnsim.hardware.profile import find_profile, read_profile

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
