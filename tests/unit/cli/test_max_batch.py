"""`vdnnsim max-batch` as scripts rely on it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.answers import MIB, asked
from tests.captured_ranks import staged
from tests.captured_steps import chain
from tests.command_line import ROOT, csv_rows, vdnnsim
from tests.machines import shipped_profile
from tests.nested import changed
from vdnnsim.cost.trust import certain_bytes
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.planning.deadline import TimeLimit
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.report.document import Document, Table
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.study.largest_batch import LargestBatch
from vdnnsim.study.largest_table import _nothing, largest_table

SCENARIO = """
schema_version: 1
workload: {{network: alexnet, batch_size: {batch_size}, element_type: float32}}
hardware: {hardware}
policies: [base(m), vdnn_all(m)]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A profile with little memory, and scenarios."""
    profile = (ROOT / "hw_profiles" / "titan_x_maxwell.yaml").read_text(encoding="utf-8")
    changed = profile.replace("12 GiB", "100 MiB").replace("64 GiB", "100 MiB").replace("titan_x_maxwell", "small")
    assert changed.count("100 MiB") == 2
    (tmp_path / "small.yaml").write_text(changed)
    for name in ("titan_x_maxwell", "small.yaml"):
        text = SCENARIO.format(hardware=name, batch_size=8)
        (tmp_path / f"on_{name.removesuffix('.yaml')}.yaml").write_text(text)
    return tmp_path


def test_a_row_for_each_policy_with_speed_and_refusal(folder: Path) -> None:
    done = vdnnsim("max-batch", "on_titan_x_maxwell.yaml", "--csv", "max.csv", folder=folder)
    assert done.stderr == ""
    assert " ".join(done.stdout.split()).startswith(
        "alexnet, largest batch of images, float32, training on NVIDIA GeForce GTX Titan X (Maxwell) with 12.0 GiB "
        "(ideal memory model) policy largest batch images/s what stops one image more base(m) "
    )
    assert " of 2 iterations " in done.stdout.partition("- Kernel times: ")[2]
    base, everything = csv_rows(folder / "max.csv")
    named = ("network", "policy", "batch_size", "samples_per_s", "layer", "phase", "refusal", "part_size")
    assert tuple(base) == (*named, "sure_batch_size")
    assert [base["policy"], everything["policy"]] == ["base(m)", "vdnn_all(m)"]
    largest = int(base["batch_size"])
    assert 8 < largest < int(everything["batch_size"])
    assert f"{float(base['samples_per_s']):.4g}" in done.stdout
    for batch_size, fits in ((largest, "true"), (largest + 1, "false")):
        (folder / "run.yaml").write_text(SCENARIO.format(hardware="titan_x_maxwell", batch_size=batch_size))
        vdnnsim("run", "run.yaml", "--out", "out", folder=folder)
        row = csv_rows(folder / "out" / "results.csv")[0]
        assert row["fits"] == fits
        assert row["samples_per_s"] == base["samples_per_s"] if fits == "true" else row["refusal"] == base["refusal"]
    assert base["refusal"].startswith(f"{base['phase']} of {base['layer']} asked for ")


def test_a_network_that_fits_at_no_batch(folder: Path) -> None:
    done = vdnnsim("max-batch", "on_small.yaml", folder=folder)
    written = vdnnsim("max-batch", "on_small.yaml", "--csv", "max.csv", folder=folder)
    assert done.stdout == written.stdout
    assert "does not fit" in done.stdout
    assert [(row["batch_size"], row["samples_per_s"]) for row in csv_rows(folder / "max.csv")] == [("0", "")] * 2
    assert all("asked for" in row["refusal"] for row in csv_rows(folder / "max.csv"))


def test_a_policy_that_cuts_batches_into_parts_takes_any(folder: Path) -> None:
    text = SCENARIO.format(hardware="titan_x_maxwell", batch_size=8)
    cut = text.replace("base(m), vdnn_all(m)", "'accumulate(m)', 'accumulate(m, steps=1)'")
    (folder / "cut.yaml").write_text(cut)
    done = vdnnsim("max-batch", "cut.yaml", "--csv", "max.csv", folder=folder)
    free, whole = csv_rows(folder / "max.csv")
    assert (free["batch_size"], free["part_size"]) == ("1000000", whole["batch_size"])
    assert whole["part_size"] == free["refusal"] == ""
    assert done.stdout.splitlines()[4].split()[:2] == ["accumulate(m)", "any"]


def test_a_search_ended_by_its_time_limit(folder: Path) -> None:
    done = vdnnsim("max-batch", "on_small.yaml", "--time-limit", "1 ns", folder=folder)
    assert done.stdout.count("not known") == 4
    assert "the search ended after its part of 1e-09 s; 0 fitted; " in " ".join(done.stdout.split())
    text = _nothing(LargestBatch("mine", 8, None, None, untried=16, late_s=42.2), TimeLimit.parse("18 s"), "images")
    assert all(
        each in text for each in ("its part of 18 s, 42 s late", "; 8 fitted, 16 did not; ", "`--time-limit '72 s'`")
    )


@pytest.mark.parametrize("limit", ["0 s", "soon", "3 GiB"])
def test_wrong_time_limits_are_refused(folder: Path, limit: str) -> None:
    done = vdnnsim("max-batch", "on_small.yaml", "--time-limit", limit, folder=folder, status=1)
    assert done.stderr.startswith(f"vdnnsim: --time-limit: found {limit!r}, expected ")


def test_a_captured_model_has_the_batch_that_leaves_memory_free_beside_the_largest() -> None:
    """In a MiB without gaps all but 24 B grows with the batch: the one is the certain share of the other."""
    scenario = asked(CapturedModel(chain(20_000), chain(10_000)), MIB)
    shown = largest_table(scenario, TimeLimit(10.0), "").shown
    assert isinstance(shown, Document)
    (table,) = (each for each in shown.blocks if isinstance(each, Table))
    cells = {each.title: each.cells[0] for each in table.columns}
    share = int(cells["with 5.0 % left"]) / int(cells["largest batch"])
    assert share == pytest.approx(certain_bytes(MIB) / MIB, rel=1e-3)


def test_the_batch_that_leaves_memory_free_is_the_one_that_fits_in_a_run() -> None:
    """By what PyTorch's allocator reserves with all memory there, not by what it would make of less.

    `run` asks whether the peak of a replay on the card leaves a part of it free: that holds for this batch, and for one
    image more it does not.
    """
    scenario = asked(CapturedModel(chain(200_000), chain(100_000)), 44 * MIB)
    scenario = replace(scenario, memory_model=MemoryModel.PYTORCH)
    found = largest_table(scenario, TimeLimit(10.0), "")
    ((sure, largest),) = found.to_pandas()[["sure_batch_size", "batch_size"]].to_numpy()
    assert 0 < sure < largest
    for batch, is_sure in ((sure, True), (sure + 1, False)):
        result = run_scenario(replace(scenario, workload=scenario.workload_of(int(batch))))
        assert result.results[0].fits
        assert result.fits_surely is is_sure


def test_all_stages_of_a_pipeline_fit_at_the_largest_batch() -> None:
    """Each stage holds a weight and two gradients of it, 12 B, and six activations of 20 B a sample to the end.

    Among four micro-batches of 7 samples, two to a stage, that is 852 B; rates are those of `run`.
    """
    firsts, lasts = zip(*map(staged, (1, 2)), strict=True)
    model = CapturedModel(*firsts, others=[CapturedModel(*lasts)])
    scenario = scenario_of(model, "x", shipped_profile("h100_x8"), (PyTorch(),))
    scenario = changed(scenario, "server.gpu", memory_bytes=852 + scenario.server.gpu.context_bytes, granule_bytes=1)
    scenario = replace(scenario, memory_model=MemoryModel.IDEAL)
    found = largest_table(scenario, TimeLimit(10.0), "").to_pandas()
    assert list(found["batch_size"]) == [7]
    result = run_scenario(replace(scenario, workload=scenario.workload_of(7)))
    assert {each.metrics.samples_per_s for each in result.results} == {found["samples_per_s"][0]}
    assert not run_scenario(replace(scenario, workload=scenario.workload_of(8))).results[0].fits


def test_the_largest_batch_of_several_micro_batches_is_that_of_one_of_them() -> None:
    """Their rate is that of `run`, of all micro-batches together."""
    scenario = asked(CapturedModel(chain(200_000), chain(100_000), rounds=3), 44 * MIB)
    shown = largest_table(scenario, TimeLimit(10.0), "")
    ((batch, rate),) = shown.to_pandas()[["batch_size", "samples_per_s"]].to_numpy()
    result = run_scenario(replace(scenario, workload=scenario.workload_of(int(batch))))
    assert result.workload.batch_size == 3 * batch
    assert result.results[0].metrics.samples_per_s == rate
    assert "largest micro-batch" in str(shown)
