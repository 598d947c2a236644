"""Policies without a plan: rows with a reason, beside which all others run; `check` and `run` say the same."""

import json
from pathlib import Path

import pytest

from tests.command_line import csv_rows, vdnnsim

SCENARIO = """
schema_version: 1
workload: {network: tiny_linear, batch_size: 3}
hardware: titan_x_maxwell
memory_model: mxnet
policies: [POLICIES]
"""
DIVISORS = "accumulate(p, steps=2): steps: found 2, expected a divisor of the batch, 512 at most: 1, 3"
PAGES = "page_migration(p): memory_model: found 'mxnet', expected 'ideal', for pages need no contiguous memory"
SEGMENTS = "checkpoint(p, segments=1000): segments: found 1000, expected at most 10, the modules of tiny_linear"


def scenario(folder: Path, *policies: str) -> Path:
    (folder / "s.yaml").write_text(SCENARIO.replace("POLICIES", ", ".join(policies)))
    return folder


MANY = ("'accumulate(steps=2)'", "base(p)", "page_migration", "'checkpoint(segments=1000)'")


def test_a_policy_without_a_plan_is_a_row_with_its_reason(tmp_path: Path) -> None:
    done = vdnnsim("run", "s.yaml", "--out", "out", folder=scenario(tmp_path, *MANY))
    printed = " ".join(done.stdout.split())
    rows = csv_rows(tmp_path / "out" / "results.csv")
    manifest = json.loads((tmp_path / "out" / "run.json").read_text())
    page = (tmp_path / "out" / "report.md").read_text()
    assert [(row["policy"], row["fits"]) for row in rows] == [
        ("base(p)", "true"),
        ("accumulate(p, steps=2)", ""),
        ("page_migration(p)", ""),
        ("checkpoint(p, segments=1000)", ""),
    ]
    for row, reason in zip(rows[1:], (DIVISORS, PAGES, SEGMENTS), strict=True):
        label, _, why = reason.partition(": ")
        assert (row["policy"], row["refusal"], manifest["without_plan"][label]) == (label, why, why)
        assert f"no plan: {reason}" in printed
    assert "## Which policies have no plan?" in page


def test_check_and_run_agree_on_policies_without_a_plan(tmp_path: Path) -> None:
    done = vdnnsim("check", "s.yaml", folder=scenario(tmp_path, *MANY))
    assert done.stdout.count("\n") == 1
    for place, reason in (("policies[0]", DIVISORS), ("policies[2]", PAGES), ("policies[3]", SEGMENTS)):
        assert f"; no plan: {place}: {reason}" in done.stdout


def test_where_none_can_run_both_refuse(tmp_path: Path) -> None:
    """In one line that names the file, the key path, and what would be right."""
    scenario(tmp_path, "'accumulate(steps=2)'", "page_migration")
    for command in ("check", "run"):
        done = vdnnsim(command, "s.yaml", folder=tmp_path, status=1)
        assert done.stderr == f"vdnnsim: s.yaml: policies[0]: {DIVISORS}\n"
    assert not (tmp_path / "reports").exists()


def test_of_the_largest_batches_only_those_that_can_be_are_sought(tmp_path: Path) -> None:
    """Two parts are cut of any even batch; nothing makes pages run under MXNet's plan."""
    scenario(tmp_path, "'accumulate(steps=2)'", "page_migration")
    done = vdnnsim("max-batch", "s.yaml", "--csv", "m.csv", folder=tmp_path)
    first, second = csv_rows(tmp_path / "m.csv")
    assert int(first["batch_size"]) > 0
    assert (second["batch_size"], f"page_migration(p): {second['refusal']}") == ("0", PAGES)
    assert "no plan" in done.stdout

    scenario(tmp_path, "page_migration")
    done = vdnnsim("max-batch", "s.yaml", folder=tmp_path, status=1)
    assert done.stderr == f"vdnnsim: {PAGES}\n"


@pytest.mark.parametrize("policy", MANY)
def test_a_study_may_begin_where_a_policy_cannot_run(tmp_path: Path, policy: str) -> None:
    """Its axes change the batch or the memory model."""
    scenario(tmp_path, policy)
    (tmp_path / "study.yaml").write_text(
        "schema_version: 1\nscenario: s.yaml\naxes: {workload.batch_size: [4], memory_model: [ideal]}\n"
    )
    vdnnsim("check", "study.yaml", folder=tmp_path)
