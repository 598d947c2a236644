"""A folder into which three policies were written: seven files that every run writes, and three traces."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.errors import OutputError
from vdnnsim.report.folder import earlier_files
from vdnnsim.report.run.folder import ALWAYS, RUN_WRITER, report_files, trace_names, write_report

TRACES = {"trace_move_m.json", "trace_keep_p.json", "trace_dyn.json"}


@pytest.fixture
def folder(result: ScenarioResult, tmp_path: Path) -> Path:
    """What the run of all three left, and a note of somebody's."""
    written = write_report(result, tmp_path)
    assert (len(written.files), written.removed) == (10, 0)
    assert written.nbytes == sum(path.stat().st_size for path in written.files)
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def rename_in_manifest(folder: Path, **changes: object) -> None:
    """Say other things in the manifest."""
    content = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(content | changes))


def test_traces_of_policies_that_are_no_longer_asked_for_go(
    folder: Path, result: ScenarioResult, move: PolicyResult
) -> None:
    """Two of three; the note stays, and so does what looks like a trace but was never written here."""
    (folder / "trace_mine.json").write_text("mine")

    written = write_report(replace(result, results=(move,)), folder)

    assert (len(written.files), written.removed) == (8, 2)
    assert names(folder) == {*ALWAYS, "trace_move_m.json", "notes.txt", "trace_mine.json"}
    assert (folder / "trace_mine.json").read_text() == "mine"


def test_what_no_run_wrote_is_not_overwritten(result: ScenarioResult, tmp_path: Path) -> None:
    """A report of somebody else's: one line, and nothing is changed."""
    (tmp_path / "report.md").write_text("mine")

    with pytest.raises(
        OutputError, match=r"report\.md: was not written by an earlier run; move it away, or write elsew"
    ):
        write_report(result, tmp_path)

    assert names(tmp_path) == {"report.md"}
    assert (tmp_path / "report.md").read_text() == "mine"


def test_a_trace_that_another_run_did_not_name_is_somebody_elses(
    folder: Path, result: ScenarioResult, move: PolicyResult
) -> None:
    rename_in_manifest(folder, files=[*ALWAYS, "trace_dyn.json"])
    (folder / "trace_move_m.json").write_text('{"traceEvents":[]}')
    with pytest.raises(OutputError, match=r"trace_move_m\.json: was not written by an earlier run"):
        write_report(replace(result, results=(move,)), folder)


@pytest.mark.replay
@pytest.mark.parametrize(
    "content",
    [
        *("no JSON", "[]", '{"format_version": 1, "study": "s", "files": ["results.csv"]}', "[" * 100_000),
        '{"format_version": 1, "scenario": {}, "results": []}',
        '{"format_version": 1, "scenario": {}, "results": [], "files": "results.csv"}',
    ],
)
def test_a_manifest_of_something_else_makes_nothing_ours(result: ScenarioResult, tmp_path: Path, content: str) -> None:
    """A sweep names its files as well, and its results.csv is not a run's."""
    (tmp_path / "run.json").write_text(content)
    (tmp_path / "results.csv").write_text("mine")

    assert earlier_files(tmp_path, RUN_WRITER) == frozenset()
    with pytest.raises(OutputError, match="was not written by an earlier run"):
        write_report(result, tmp_path)
    assert (tmp_path / "results.csv").read_text() == "mine"


def test_a_manifest_that_names_what_no_run_writes_is_not_believed(
    folder: Path, result: ScenarioResult, move: PolicyResult
) -> None:
    """A note, a file above the folder, another one behind a name of ours, and what is no name."""
    (folder.parent / "above.txt").write_text("mine")
    others = ["notes.txt", "../above.txt", "trace_../notes.txt", "trace_x/y.json", 7]
    rename_in_manifest(folder, files=[*ALWAYS, *sorted(TRACES), *others])

    assert earlier_files(folder, RUN_WRITER) == {*ALWAYS, *TRACES}
    write_report(replace(result, results=(move,)), folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder.parent / "above.txt").read_text() == "mine"


def test_what_is_always_written_is(result: ScenarioResult) -> None:
    assert set(report_files(result)) == {*ALWAYS, *TRACES}


def test_the_files_of_a_run(result: ScenarioResult, tmp_path: Path) -> None:
    paths = write_report(result, tmp_path / "run").files
    assert sorted(path.name for path in paths) == [
        "memory.png",
        "policies.png",
        "report.html",
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
