"""Steps that were measured on a GPU, as the page on them reads them."""

import csv
from pathlib import Path

import pytest

from reports.measured.__main__ import ANSWERS, ROWS, Measured, host_decides, read_rows
from reports.measured.models import SUBJECTS

torch = pytest.importorskip("torch")


def test_the_median_of_idle_hosts_counts_else_kernels_else_nothing(tmp_path: Path) -> None:
    """Steps of 10 and 12 ms have a median of 11; of a busy host the 9 ms of kernels count, if known."""
    path = tmp_path / "rows.csv"
    path.write_text(
        "model,batch,execution,step_ms,gpu_busy_ms,allocated_peak,reserved_peak\n"
        "a,1,eager,10,8,100,200\na,1,eager,12,,100,300\na,2,eager,,9,7,8\na,3,eager,,,7,8\n"
    )
    assert read_rows(path) == [
        Measured("a", 1, "eager", "step", 0.011, 100, 250, 0.008),
        Measured("a", 2, "eager", "kernels", 0.009, 7, 8, 0.009),
    ]


def test_the_host_decides_where_a_sample_takes_longer_than_in_the_largest_batch() -> None:
    """4 samples in 4 s are 1 s each; one in 1.2 s takes more than 1.1 times that, one in 1.05 s does not."""
    large = Measured("a", 4, "eager", "step", 4.0, 1, 1)
    slow, fast = (Measured("a", 1, "eager", "step", seconds, 1, 1) for seconds in (1.2, 1.05))
    assert [host_decides(each, [large, each]) for each in (slow, fast, large)] == [True, False, False]


def test_the_host_decides_where_the_gpu_idles() -> None:
    """Of 4 s the GPU works 3.5 or 3.7: 4 is more than 1.1 times 3.5, not than 3.7."""
    rows = [Measured("a", 4, "eager", "step", 4.0, 1, 1, busy_s) for busy_s in (3.5, 3.7)]
    assert [host_decides(each, rows) for each in rows] == [True, False]


def test_networks_have_as_many_parameters_as_those_that_were_measured() -> None:
    with ROWS.open(newline="") as file:
        measured = {row["model"]: int(row["parameters"]) for row in csv.DictReader(file)}
    assert {"gpt2_774m", "llama_1.2b", "bert_large", "t5_base", "vit_large", "unet"} <= set(measured)
    for name, expected in measured.items():
        if name not in ("resnet50", "convnext_base"):
            with torch.device("meta"):
                assert sum(each.numel() for each in SUBJECTS[name].make().parameters()) == expected, name


def test_answers_and_plans_have_both_sides() -> None:
    """Six answers and four plans; a plan stands beside its plain loop, and no time or memory is zero."""
    with ANSWERS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows] == 6 * ["answer"] + 4 * ["plan"]
    for row in rows:
        assert bool(row["plain_s"]) == (row["kind"] == "plan")
        assert min(float(row[f"{side}_{unit}"]) for side in ("predicted", "measured") for unit in ("s", "gib")) > 0
