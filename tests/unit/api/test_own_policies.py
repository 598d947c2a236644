"""Policies of a user's own in a notebook: objects in place of names, and modules that a file's policies are in."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

import vdnnsim
from tests.refusals import refusal
from vdnnsim.api import LoadedScenario, LoadedStudy
from vdnnsim.errors import PolicyError
from vdnnsim.policies.base import Base

SCENARIO = """{schema_version: 1, workload: {network: alexnet, batch_size: 16}, hardware: titan_x_maxwell,
policies: [base(p), %s]}"""
MODULE = """
from typing import ClassVar
from vdnnsim.policies.base import Base

class Written(Base, frozen=True, kw_only=True):
    name: ClassVar[str] = "written"
    summary: ClassVar[str] = "keeps everything"
"""


class Mine(Base, frozen=True, kw_only=True):
    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "keeps everything"


class Taken(Base, frozen=True, kw_only=True):
    """Has the name of its base, `base`."""


@pytest.fixture
def scenario(tmp_path: Path) -> LoadedScenario:
    (tmp_path / "question.yaml").write_text(SCENARIO % "vdnn_all(m)")
    found = vdnnsim.load(tmp_path / "question.yaml")
    assert isinstance(found, LoadedScenario)
    return found


def test_an_object_stands_for_a_policy_in_every_question(scenario: LoadedScenario) -> None:
    """It plans as `base` does, so that its seconds are the same."""
    rows = scenario.under("base(p)", Mine()).run().rows

    assert [row.policy for row in rows] == ["base(p)", "mine(p)"]
    assert rows[0].metrics.iteration_s == rows[1].metrics.iteration_s
    for asked in (vdnnsim.max_batch, vdnnsim.machines):
        assert "mine(p)" in str(asked(scenario, "titan_x_maxwell", policy=Mine()))
    assert "mine(p)" in str(vdnnsim.whatif(scenario, "gpu.memory=8GiB", policy=[Mine()]))


def test_what_is_no_policy_is_refused(scenario: LoadedScenario) -> None:
    under: Any = scenario.under

    assert "the name 'base' is taken by vdnnsim.policies.base" in refusal(PolicyError, under, Taken())
    assert refusal(PolicyError, under, "mine(p)").endswith("; of your own, give an object, as MyPolicy()")
    assert "expected a policy as vdnn_all(m)" in refusal(PolicyError, under, Mine)


def test_files_name_policies_of_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "written_policy.py").write_text(MODULE)
    scenario, study = tmp_path / "question.yaml", tmp_path / "grid.yaml"
    scenario.write_text(SCENARIO % "written(p)")
    study.write_text("{schema_version: 1, scenario: question.yaml, axes: {gpu.memory: [2 GiB, 12 GiB]}}")

    assert "policy_module of vdnnsim.load" in refusal(PolicyError, vdnnsim.load, scenario)
    assert "written(p)" in str(vdnnsim.load(scenario, policy_module="written_policy"))
    loaded = vdnnsim.load(study, policy_module=["written_policy"])
    assert isinstance(loaded, LoadedStudy)
    assert "4 done, 0 failed" in str(loaded.run(tmp_path / "grid"))
