import csv
import json
from io import StringIO

import msgspec
import pytest

from reports.swap2018.readings import READINGS, compare_readings
from reports.swap2018.report import paper_report
from tests.toy import ROOT
from vdnnsim.claims.claim import Claim, read_claims
from vdnnsim.claims.swap2018.metrics import METRICS
from vdnnsim.claims.swap2018.runs import ServerRuns, SwapReading
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
    planned = SwapReading(
        "memory_model: planned", memory_model=next(r for r in READINGS if "best_fit" in r.name).memory_model
    )
    everything = SwapReading("interval: 1", options={"swap": {"interval": 1}})

    slower, refused = (
        each.rows for each in compare_readings((ALEXNET, paged), fresh(), "p100_x2", (everything, planned))
    )

    default = METRICS.check(ALEXNET, fresh(), "p100_x2")
    assert slower[0] is not None
    assert float(slower[0].simulated.rstrip("%")) < float(default.simulated.rstrip("%"))
    assert refused[1] is None


def test_readings_have_names_of_their_own_and_say_what_is_open() -> None:
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

    files = paper_report(
        few, rows, runs, PROFILES, readings=(SwapReading("interval: 1", "Which?", {"swap": {"interval": 1}}),)
    )

    assert sorted(name for name in files if not name.endswith(".png")) == [
        "README.md",
        "claims.csv",
        "readings.csv",
        "run.json",
        "tables.csv",
    ]
    assert sorted(name for name in files if name.endswith(".png")) == [
        "2gpus_gpus_staggered_swap.png",
        "2gpus_gpus_swap.png",
        "2gpus_links_staggered_swap.png",
        "2gpus_links_swap.png",
        "4gpus_gpus_staggered_swap.png",
        "4gpus_gpus_swap.png",
        "4gpus_links_staggered_swap.png",
        "4gpus_links_swap.png",
        "scaling.png",
    ]
    (effect,) = csv.DictReader(StringIO(files["readings.csv"].decode()))
    assert (effect["reading"], effect["id"]) == ("interval: 1", "s-7")
    tables = list(csv.DictReader(StringIO(files["tables.csv"].decode())))
    assert [row["table"] for row in tables] == ["Table I"] * 4 + ["Table II"] * 12 + ["Table III"] * 12
    inputs = json.loads(files["run.json"])["inputs"]
    assert {"p100_x2.yaml", "p100_x4.yaml", "titan_xp.yaml", "p100_x2.fit.csv"} <= inputs.keys()
