"""The folder of a run: its files, its manifest, and what of an earlier run is replaced."""

import json
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from vdnnsim.analysis.columns import RUN, result_rows
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.errors import OutputError
from vdnnsim.report import folder as module
from vdnnsim.report.folder import Commit, earlier_files, manifest, refuse_foreign, versions
from vdnnsim.report.run.folder import ALWAYS, RUN_WRITER, run_facts, trace_names, write_report


def test_manifest_states_scenario_versions_and_inputs(result: ScenarioResult, monkeypatch: pytest.MonkeyPatch) -> None:
    """conv1 has 5 x 5 + 5 weights and fc 5 + 1, 36 in all; the loss is the third layer."""
    monkeypatch.setattr(module, "source_commit", lambda: Commit("c0ffee", modified=True))
    said = json.loads(manifest(1, result.sources, run_facts(result), ("results.csv", "a.png")))
    assert said["versions"] == versions()
    assert (said["commit"], said["commit_modified"]) == ("c0ffee", True)
    assert [tuple(each.values()) for each in said["inputs"]] == [*result.sources]
    assert said["seed"] is None
    assert said["scenario"] == {
        "name": "question",
        "workload": {
            "network": "toy",
            "layers": 3,
            "parameters": 36,
            "batch_size": 1,
            "element_type": "float16",
            "precision": "float16",
            "optimizer": "none",
            "mode": "training",
        },
        "hardware": "toy",
        "policies": ["move(m)", "keep(p)", "dyn"],
        "memory_model": "ideal",
        "pinned_memory": "arena",
        "execution": "eager",
        "gpus": 1,
        "gradients": None,
    }
    assert said["hardware"]["gpu"]["memory_bytes"] == 1000
    assert said["hardware"]["gpu"]["flop_per_s"] == {"float32": 1.0}
    assert list(said["hardware"]["figures"][0].values()) == ["gpu.memory", "1000 B", "datasheet", "the box"]
    assert said["files"] == ["a.png", "results.csv"]
    assert said["algorithm_profiling_s"] == 12.0


def test_every_metric_of_a_policy(result: ScenarioResult) -> None:
    facts = run_facts(result)
    dyn, row = facts["results"][2], dict(zip(RUN, result_rows(result)[0], strict=True))
    metrics = dyn.pop("metrics")
    assert metrics.pop("peak_by_kind") == {"workspace": 30, "weights": 20, "feature maps": 10}
    assert metrics.pop("stall_by_cause") == {"waits for an offload": 2.0, "waits for a fetch on demand": 2.0}
    assert metrics == {name: row[name] for name in metrics}
    assert len(metrics) == 12
    assert dyn == {
        "policy": "dyn",
        "algorithms": "all(m)",
        "gpu": 0,
        "fits": True,
        "refusal": None,
        "performance_ratio": 0.75,
        "feature_performance_ratio": 4.0 / 6.0,
        "server_samples_per_s": 0.125,
        "host_issue_s": 0.5,
        "passes": [{"name": "all(m)", "fits": True, "cost_s": 8.0}, {"name": "base(p)", "fits": False, "cost_s": 2.0}],
        "passes_s": 10.0,
    }
    assert facts["oracle"]["allocated_bytes"] == 1020


def test_refusal_in_the_manifest(result: ScenarioResult) -> None:
    refusal = run_facts(result)["results"][1]["refusal"]
    assert refusal.pop("explanation").startswith("backward weights of conv1 asked for 990 B")
    assert refusal == {
        "pool": "GPU memory",
        "layer": "conv1",
        "phase": "backward weights",
        "buffer": "workspace",
        "requested_bytes": 990,
        "free_bytes": 970,
        "largest_free_bytes": 970,
        "capacity_bytes": 1000,
        "held_bytes": {"weights": 20, "feature maps": 10},
    }


TRACES = {"trace_move_m.json", "trace_keep_p.json", "trace_dyn.json"}


@pytest.fixture
def folder(result: ScenarioResult, tmp_path: Path) -> Path:
    """The folder of a run of three policies, with a file of the user's."""
    written = write_report(result, tmp_path)
    assert (len(written.files), written.removed) == (10, 0)
    assert written.nbytes == sum(path.stat().st_size for path in written.files)
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def rename_in_manifest(folder: Path, **changes: object) -> None:
    content = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(content | changes))


def test_stale_traces_of_an_earlier_run_are_removed(folder: Path, result: ScenarioResult, move: PolicyResult) -> None:
    (folder / "trace_mine.json").write_text("mine")
    written = write_report(replace(result, results=(move,)), folder)
    assert (len(written.files), written.removed) == (7, 3)
    assert names(folder) == {*ALWAYS, "trace_move_m.json", "notes.txt", "trace_mine.json"}
    assert (folder / "trace_mine.json").read_text() == "mine"


@pytest.mark.parametrize(
    "content",
    [
        *("no JSON", "[]", '{"format_version": 1, "study": "s", "files": ["results.csv"]}', "[" * 100_000),
        '{"format_version": 1, "scenario": {}, "results": []}',
        '{"format_version": 1, "scenario": {}, "results": [], "files": "results.csv"}',
    ],
)
def test_a_foreign_manifest_claims_no_files(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    (tmp_path / "results.csv").write_text("mine")
    assert earlier_files(tmp_path, RUN_WRITER) == frozenset()
    with pytest.raises(OutputError, match="was not written by an earlier run"):
        refuse_foreign(tmp_path, ALWAYS, RUN_WRITER)


def test_names_that_no_run_writes_are_ignored(folder: Path, result: ScenarioResult, move: PolicyResult) -> None:
    (folder.parent / "above.txt").write_text("mine")
    others = ["notes.txt", "../above.txt", "trace_../notes.txt", "trace_x/y.json", 7]
    rename_in_manifest(folder, files=[*ALWAYS, *sorted(TRACES), *others])
    assert earlier_files(folder, RUN_WRITER) == {*ALWAYS, *TRACES}
    write_report(replace(result, results=(move,)), folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder.parent / "above.txt").read_text() == "mine"


def test_the_files_of_a_run(result: ScenarioResult, tmp_path: Path) -> None:
    paths = write_report(result, tmp_path / "run").files
    assert {path.name for path in paths} == {*ALWAYS, *TRACES, "policies.png"}
    assert sorted((tmp_path / "run").iterdir()) == sorted(paths)
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["files"] == sorted(path.name for path in paths)
    report = (tmp_path / "run" / "report.md").read_text()
    assert all(f"]({name}.png)" in report for name in ("memory", "policies", "timeline"))
    row = (tmp_path / "run" / "results.csv").read_text().splitlines()[1]
    assert row.startswith("toy,1,0,move(m),m,true,8.0,0.125,60")


def test_trace_names_are_safe_and_differ(move: PolicyResult) -> None:
    labels = ("vdnn_all(m)", "vdnn_all m", "../etc", "vdnn_all_m")
    assert trace_names(tuple(replace(move, policy=label) for label in labels)) == (
        "trace_vdnn_all_m.json",
        "trace_vdnn_all_m_2.json",
        "trace_.._etc.json",
        "trace_vdnn_all_m_3.json",
    )


def test_all_but_pictures_is_written_where_these_cannot_be_drawn(
    result: ScenarioResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: ScenarioResult) -> NoReturn:
        raise ValueError("of matplotlib")

    monkeypatch.setattr("vdnnsim.report.plots.draw_pictures", broken)
    with pytest.raises(ValueError, match="of matplotlib"):
        write_report(result, tmp_path)
    written = json.loads((tmp_path / "run.json").read_bytes())["files"]
    assert {"results.csv", "report.md", "report.html"} <= set(written)
    assert names(tmp_path) == set(written)
    assert not any(each.endswith(".png") for each in written)
