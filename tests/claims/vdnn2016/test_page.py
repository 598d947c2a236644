"""The page on Rhu et al. (2016): readings, draws of the machine, and all of its files."""

import csv
from dataclasses import replace
from io import StringIO

import msgspec
import pytest

from reports.vdnn2016.readings import LINK, READINGS, compare_readings, draw_factors, perturbed, sensitivity
from reports.vdnn2016.report import paper_report
from tests.toy import ROOT, TOY_SERVER
from vdnnsim.claims.claim import Claim, read_claims
from vdnnsim.claims.vdnn2016.metrics import METRICS
from vdnnsim.claims.vdnn2016.runs import VdnnRuns

TOY = replace(TOY_SERVER, cost_model={"a_fraction": 0.9, "b_s": 2.0})
CLAIMS = {claim.id: claim for claim in read_claims("vdnn2016").claims}


def test_draws_are_seeded_and_stay_within_twenty_percent() -> None:
    """Two parameters and the link, five draws: equal each time, another seed gives others."""
    draws = draw_factors(TOY, 5)
    assert draws == draw_factors(TOY, 5)
    assert draws != draw_factors(TOY, 5, seed=1)
    assert all(set(draw) == {"a_fraction", "b_s", LINK} for draw in draws)
    assert all(0.8 <= factor <= 1.2 for draw in draws for factor in draw.values())
    # 0.9 x 1.2 would be 1.08 and becomes 1; 2 s x 1.2 = 2.4 s; both directions of the link at 0.8 of 1 B/s.
    drawn = perturbed(TOY, {"a_fraction": 1.2, "b_s": 1.2, LINK: 0.8})
    assert drawn.cost_model == {"a_fraction": 1.0, "b_s": pytest.approx(2.4)}
    assert (drawn.link.h2d_bytes_per_s, drawn.link.d2h_bytes_per_s) == (0.8, 0.8)


def test_sensitivity_of_claims_to_draws(vdnn_runs: VdnnRuns) -> None:
    """The rate of copies depends on the link alone: rank correlation 1. Offloaded bytes never change.

    AlexNet's reuse distance is a time, whether VGG-16 (64) fits a text.
    """
    ids = ("v-vm-2", "v-dma-1", "v-mem-10", "v-perf-7")
    rate, moved = CLAIMS["v-dma-1"], CLAIMS["v-vm-2"]

    table = {each.claim.id: each for each in sensitivity([CLAIMS[i] for i in ids], vdnn_runs.server, draws=6)}

    assert table[moved.id].met == 1
    assert table[moved.id].least == table[moved.id].most
    assert table[moved.id].driver is None
    assert table[rate.id].driver == LINK
    assert table[rate.id].rank_correlation == pytest.approx(1)
    assert table["v-mem-10"].least is None
    assert (table["v-perf-7"].least or 0) < (table["v-perf-7"].most or 0)


@pytest.mark.usefixtures("in_this_process")
def test_readings_move_their_claims_alone(vdnn_runs: VdnnRuns) -> None:
    """Without POOL's prefetch VGG-16 (128) under all(m) needs less; whole GPU memory exceeds 4.2 GiB; v-vm-2 stays."""
    claims = [_short(CLAIMS[each]) for each in ("v-vm-1", "v-vm-2", "v-vm-10")]
    rows = [METRICS.check(claim, vdnn_runs, vdnn_runs.server.name) for claim in claims]

    compared = compare_readings(claims, vdnn_runs.server, FEW_READINGS)
    by_name = {each.reading.name: {effect.default.id for effect in each.effects(rows)} for each in compared}
    assert by_name["prefetch_search: fig10_without_pool"] >= {"v-vm-1"}
    assert by_name["gpu_memory: whole"] == {"v-vm-10"}
    assert all("v-vm-2" not in moved for moved in by_name.values())
    assert len(by_name) == 2


def test_passes_follow_the_options_of_a_reading(vdnn_runs: VdnnRuns) -> None:
    """A pass without offload that judges itself by its own iteration is none(p), no more base(p)."""
    claim, (layer_wise,) = (
        CLAIMS["v-perf-11"],
        [each for each in READINGS if each.name == "no_offload_pass: layer_wise"],
    )

    ((row,),) = [each.rows for each in compare_readings([claim], vdnn_runs.server, [layer_wise])]
    assert row is not None
    assert row.simulated.startswith("all(m); none(p); conv(p); all(p)")


FEW_READINGS = [each for each in READINGS if each.name in ("prefetch_search: fig10_without_pool", "gpu_memory: whole")]
FEW = ("v-uvm-1", "v-mem-10", "v-vm-1", "v-vm-2", "v-vm-10")


def _short(claim: Claim) -> Claim:
    """Of ever deeper networks the first two, VGG-16 and VGG-116, are enough."""
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
