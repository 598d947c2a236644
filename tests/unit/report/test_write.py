import json
from dataclasses import replace
from pathlib import Path

import pytest

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.errors import OutputError
from vdnnsim.report.write import report_files, trace_names, write_report


def test_the_files_of_a_run(result: ScenarioResult, tmp_path: Path) -> None:
    paths = write_report(result, tmp_path / "run").files
    assert sorted(path.name for path in paths) == [
        "memory.png",
        "policies.png",
        "report.md",
        "results.csv",
        "run.json",
        "timeline.png",
        "trace_dyn.json",
        "trace_keep_p.json",
        "trace_move_m.json",
    ]
    assert sorted((tmp_path / "run").iterdir()) == sorted(paths)
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["files"] == sorted(path.name for path in paths)
    report = (tmp_path / "run" / "report.md").read_text()
    assert all(f"]({name}.png)" in report for name in ("memory", "policies", "timeline"))
    assert (
        (tmp_path / "run" / "results.csv").read_text().splitlines()[1].startswith("toy,1,0,move(m),m,true,8.0,0.125,60")
    )


def test_equal_results_give_equal_bytes(result: ScenarioResult) -> None:
    assert report_files(result) == report_files(result)


def test_a_folder_that_cannot_be_written(result: ScenarioResult, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError) as failure:
        write_report(result, tmp_path / "file")
    assert "\n" not in str(failure.value)


def test_trace_names_are_safe_and_differ(move: PolicyResult) -> None:
    labels = ("vdnn_all(m)", "vdnn_all m", "../etc", "vdnn_all_m")
    assert trace_names(tuple(replace(move, policy=label) for label in labels)) == (
        "trace_vdnn_all_m.json",
        "trace_vdnn_all_m_2.json",
        "trace_.._etc.json",
        "trace_vdnn_all_m_3.json",
    )
