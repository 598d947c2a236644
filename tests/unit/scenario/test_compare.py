"""Policies without a plan, compared and run: rows with a reason, beside which all others run."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.command_line import SMALL, csv_rows, vdnnsim
from tests.toy import TOY_SERVER
from vdnnsim.analysis.results import Declined
from vdnnsim.errors import PolicyError
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.schedule import Release, feature_maps, forward
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import choose_kernels
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy, Setting
from vdnnsim.policies.registry import known_policies
from vdnnsim.scenario.experiment import compare_policies, run_scenario
from vdnnsim.scenario.read import read_scenario

PICKY = """
from typing import ClassVar
from vdnnsim.errors import PolicyError
from vdnnsim.policies.interface import Policy

class Picky(Policy, frozen=True, kw_only=True):
    name: ClassVar[str] = "picky"
    summary: ClassVar[str] = "plans nothing"

    def plan(self, setting):
        raise PolicyError("expects another network")
"""


class Picky(Policy, frozen=True, kw_only=True):
    name: ClassVar[str] = "picky"
    summary: ClassVar[str] = "plans nothing"

    def plan(self, setting: Setting) -> TrainingPlan:
        raise PolicyError(f"{self.label}: expects a network other than {setting.workload.graph.name}")


def scenario_file(folder: Path) -> Path:
    path = folder / "small.yaml"
    path.write_text(SMALL)
    return path


def test_a_policy_that_refuses_is_a_row_and_not_the_end(tmp_path: Path) -> None:
    """The base(p) of the scenario is compared with itself."""
    scenario, compared = read_scenario(scenario_file(tmp_path)), list[str]()
    comparison = compare_policies(scenario, (Picky(), scenario.policies[0]), compared.append)
    assert comparison.result.declined == (Declined("picky", "expects a network other than alexnet"),)
    assert [each.row.policy for each in comparison.standings] == ["base(p)"]
    assert comparison.standings[0].row.performance_ratio == 1.0
    assert compared == ["picky", "base(p)"]
    # As a mapping, whose commas part no policies, and as results print them; both ask for the same here.
    scenario_file(tmp_path)
    asked = "{policy: swap, algorithms: m, interval: 2}, swap(m, interval=2),none"
    vdnnsim("compare", "small.yaml", "--policies", asked, "--csv", "table.csv", folder=tmp_path)
    assert {row["policy"] for row in csv_rows(tmp_path / "table.csv")} == {"none(p)", "swap(m, interval=2)"}


def test_policies_that_do_not_fit_are_apart(tmp_path: Path) -> None:
    """AlexNet does not fit into 1000 B under anything."""
    scenario = read_scenario(scenario_file(tmp_path))
    gpu = replace(scenario.server.gpu, memory_bytes=TOY_SERVER.gpu.memory_bytes)
    small = replace(scenario, server=replace(scenario.server, gpu=gpu))
    comparison = compare_policies(small, scenario.policies, lambda _: None)
    assert comparison.standings == ()
    assert [row.policy for row in comparison.unfit] == ["base(p)", "vdnn_all(m)"]


def test_named_policies_are_compared_in_one_table(tmp_path: Path) -> None:
    scenario_file(tmp_path)
    asked = "none,base(m),vdnn_all(m),none(p)"

    done = vdnnsim("compare", "small.yaml", "--policies", asked, "--csv", "table.csv", folder=tmp_path)

    folder = tmp_path / "reports" / "small"
    assert {path.name for path in folder.iterdir()} == {f"compare.{kind}" for kind in ("json", "csv", "png", "html")}
    page = (folder / "compare.html").read_text()
    assert re.search(r"<h2>\d of 3 are on the front of time and memory</h2>", page)
    assert "3 of 3 policies fit alexnet (8) into 12.0 GiB" in done.stdout
    assert "fitted to measurements" in done.stdout.partition("- Kernel times: ")[2]
    assert (folder / "compare.csv").read_bytes() == (tmp_path / "table.csv").read_bytes()
    assert (folder / "compare.png").read_bytes().startswith(b"\x89PNG")
    rows = csv_rows(tmp_path / "table.csv")
    assert {row["policy"] for row in rows} == {"none(p)", "base(m)", "vdnn_all(m)"}
    assert [int(row["time_rank"]) for row in rows] == sorted(int(row["time_rank"]) for row in rows)


def test_all_are_those_there_are_and_those_of_the_scenario(tmp_path: Path) -> None:
    searching = "{policy: vdnn_all, prefetch_search: fig10_without_pool}"
    scenario_file(tmp_path).write_text(SMALL.replace("base(p)", searching))
    (tmp_path / "picky_policy.py").write_text(PICKY)

    options = ("--policies", "all", "--out", ".", "--policy-module", "picky_policy")
    done = vdnnsim("compare", "small.yaml", *options, folder=tmp_path, status=1)

    assert "- no plan: picky: plan: expects another network" in done.stdout
    rows = {row["policy"]: row["outcome"] for row in csv_rows(tmp_path / "compare.csv")}
    assert rows["vdnn_all(p, prefetch_search=fig10_without_pool)"] == "fits"
    assert {"base(m)", "base(p)", "vdnn_dyn"} <= set(rows)
    assert {label.partition("(")[0] for label in rows} == {*known_policies(), "picky"}
    assert rows["picky"] == "no plan"


class Broken(Base, frozen=True, kw_only=True):
    """Releases the first map behind the first convolution, whose map the next layer reads."""

    name: ClassVar[str] = "broken"
    summary: ClassVar[str] = "releases a map too early"

    def plan(self, setting: Setting) -> TrainingPlan:
        workload = setting.workload
        first, *others = forward(workload)
        early = Release(feature_maps(workload, workload.graph.maps[1].index))
        kernels = choose_kernels(workload, setting.costs, self.algorithms)
        return lower([first, early, *others], workload, kernels, label=self.label, algorithms="p")


def test_a_plan_of_ones_own_that_breaks_the_contract_is_a_row_with_its_reason(tmp_path: Path) -> None:
    scenario = read_scenario(scenario_file(tmp_path))

    result = compare_policies(scenario, [Broken(), *scenario.policies], lambda _: None).result

    assert [row.policy for row in result.slowest] == ["base(p)", "vdnn_all(m)"]
    (declined,) = result.declined
    assert declined.policy == "broken(p)"
    assert re.fullmatch(
        r"map conv1 is used in forward of \w+ after its release behind forward of conv1 without a prefetch",
        declined.reason,
    )
    with pytest.raises(PolicyError, match=r"^broken\(p\): map conv1 is used"):
        run_scenario(replace(scenario, policies=(Broken(),)))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("base,flying", "vdnnsim: --policies: 'flying' is not a policy"),
        ("{policy: swap, interval: 2", "vdnnsim: --policies: line 1, column 27: is not YAML: "),
        ("{policy: swap, interval: two}", "vdnnsim: --policies: swap: interval: found 'two', expected an integer"),
    ],
)
def test_an_unknown_policy_is_refused_before_anything_runs(tmp_path: Path, asked: str, message: str) -> None:
    scenario_file(tmp_path)
    done = vdnnsim("compare", "small.yaml", "--policies", asked, folder=tmp_path, status=1)
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


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
