"""Comparing policies of which one has no plan, in Python and from the command line."""

import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.command_line import SMALL, csv_rows, vdnnsim
from tests.toy import TOY_SERVER
from vdnnsim.analysis.results import Declined
from vdnnsim.errors import PolicyError
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Policy, Setting
from vdnnsim.policies.registry import known_policies
from vdnnsim.scenario.experiment import compare_policies
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
    done = vdnnsim("compare", "small.yaml", *options, folder=tmp_path)

    assert "- no plan: picky: plan: expects another network" in done.stdout
    rows = {row["policy"]: row["outcome"] for row in csv_rows(tmp_path / "compare.csv")}
    assert rows["vdnn_all(p, prefetch_search=fig10_without_pool)"] == "fits"
    assert {"base(m)", "base(p)", "vdnn_dyn"} <= set(rows)
    assert {label.partition("(")[0] for label in rows} == {*known_policies(), "picky"}
    assert rows["picky"] == "no plan"


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
