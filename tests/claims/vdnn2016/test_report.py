import csv
from io import StringIO

import msgspec
import pytest

from reports.vdnn2016.readings import READINGS
from reports.vdnn2016.report import paper_report
from tests.toy import ROOT
from vdnnsim.claims.claim import Claim, read_claims
from vdnnsim.claims.vdnn2016.metrics import METRICS
from vdnnsim.claims.vdnn2016.runs import VdnnRuns

FEW_READINGS = [each for each in READINGS if each.name in ("prefetch_search: fig10_without_pool", "gpu_memory: whole")]
FEW = ("v-uvm-1", "v-mem-10", "v-vm-1", "v-vm-2", "v-vm-10")


def _short(claim: Claim) -> Claim:
    """Of the networks that become ever deeper only the first two: VGG-16 and VGG-116."""
    return msgspec.structs.replace(claim, networks=claim.networks[:2]) if claim.id == "v-vm-10" else claim


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process", "no_labels_overlap")
def test_one_command_makes_the_whole_report(vdnn_runs: VdnnRuns) -> None:
    """Ten figures with a picture and a CSV each, six tables, the page, the manifest.

    Few claims, readings and draws keep it short. Of the rows, v-vm-1 moves without POOL's prefetch and v-vm-10 turns
    when all GPU memory is counted, so both stand in readings.csv. AlexNet fits, so paging costs it nothing; VGG-16
    (256) pages 10 GiB and more in at 82 MB/s, two minutes and more where the baseline takes 4 s.
    """
    file = read_claims("vdnn2016")
    few = msgspec.structs.replace(file, claims=tuple(_short(each) for each in file.claims if each.id in FEW))
    rows = [METRICS.check(claim, vdnn_runs, few.hardware) for claim in few.claims]

    profiles = tuple(few.find_profiles(ROOT).values())
    files = paper_report(few, rows, vdnn_runs, profiles, draws=2, readings=FEW_READINGS)

    assert sum(name.endswith(".png") for name in files) == 10
    assert {name for name in files if not name.startswith(("figure", "power"))} == {
        "README.md",
        "claims.csv",
        "kernel_times.csv",
        "page_migration.csv",
        "readings.csv",
        "run.json",
        "sensitivity.csv",
    }
    readings = list(csv.DictReader(StringIO(files["readings.csv"].decode())))
    assert {row["id"] for row in readings} >= {"v-vm-1", "v-vm-10"}
    sensitivity = list(csv.DictReader(StringIO(files["sensitivity.csv"].decode())))
    assert [row["id"] for row in sensitivity] == [row.id for row in few.claims]
    paging = list(csv.DictReader(StringIO(files["page_migration.csv"].decode())))
    assert [float(row["performance_ratio"]) for row in paging if row["network"] == "alexnet"] == [1, 1], "it fits"
    assert float(paging[-1]["performance_ratio"]) < 0.1, "VGG-16 (256) at 50 us a page"
    page = files["README.md"].decode()
    assert "| v-vm-10 | maximum memory, most of vgg16" in page
    assert "Mean absolute error over all held-out rows" in page
