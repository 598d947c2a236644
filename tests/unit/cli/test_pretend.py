"""`vdnnsim pretend` on programs that write records themselves; programs that use CUDA are in tests/pretend."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from vdnnsim.cli import cli
from vdnnsim.errors import VdnnsimError


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["pretend", *arguments])
    assert isinstance(done.exception, VdnnsimError), done.output
    return str(done.exception)


@pytest.mark.parametrize(
    ("option", "value", "refusal"),
    [
        *(("--gpus", value, f"--gpus: found {value}, expected an integer from 1 to 16") for value in ("0", "17")),
        ("--steps", "0", "--steps: found 0, expected an integer from 1 on"),
        *(("--minutes", value, f"--minutes: found {value}, expected a finite number") for value in ("0", "nan")),
        ("--hardware", "h101", "'h101' is not a hardware profile; did you mean 'h100_x8'?"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, option: str, value: str, refusal: str) -> None:
    options = {"--hardware": "h100_sxm", "--out": str(tmp_path / "out")} | {option: value}
    words = [text for pair in options.items() for text in pair]
    assert refused(*words, "--", sys.executable, "train.py").startswith(refusal)
    assert not (tmp_path / "out").exists()


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refusal = refused("--hardware", "h100_sxm", "--out", str(tmp_path), "--", "no_such_program", "train.py")
    assert refusal.startswith("no_such_program: there is no such program")


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch is a CUDA build")
def test_a_pytorch_without_cuda_is_refused(tmp_path: Path) -> None:
    refusal = refused("--hardware", "h100_sxm", "--out", str(tmp_path), "--", sys.executable, "train.py")
    assert "a pretended GPU needs PyTorch built for CUDA" in refusal


def test_a_command_is_asked_for() -> None:
    done = CliRunner().invoke(cli, ["pretend", "--hardware", "h100_sxm"])
    assert done.exit_code == 2
    assert "Missing argument '-- COMMAND...'" in done.output


RECORDS = """
import json, os, pathlib, sys
session, enough = pathlib.Path(os.environ["VDNNSIM_PRETEND_SESSION"]), "VDNNSIM_PRETEND_MEMORY_BYTES" in os.environ
gib = 1 << 30
most = {"allocated_bytes": 30 * gib, "reserved_bytes": 31 * gib, "driver_bytes": 32 * gib}
place = {"phase": "forward", "module": "Net.head", "line": "train.py:7"}
peak = {
    "nbytes": 30 * gib, "place": place, "phase_bytes": {"forward": 30 * gib},
    "holders": [{**place, "nbytes": 30 * gib}], "unplaced_bytes": 0, "history_is_whole": True,
}
refused = {
    "gpu": 0, "asked_bytes": 9 * gib, "memory_bytes": 23 * gib, "free_bytes": gib, "allocated_bytes": 21 * gib,
    "reserved_bytes": 21 * gib, "place": place, "after_steps": 0,
}
fits = enough or "fits" in sys.argv
record = {
    "process": 7, "rank": 0, "torch": "2.14.1", "gpus": [{"gpu": 0, **most, "peak": peak}],
    "steps": [[most]] if fits else [], "steady_from_step": 1 if fits else None, "step_s": 0.5 if fits else None,
    "operator_s": {"mm": 0.5} if fits else {}, "out_of_memory": [] if fits else [refused], "zeros_read": [],
    "refused": [], "ended": "steady" if fits else "out of memory", "error": "",
}
(session / "process-7.json").write_text(json.dumps(record))
(session / "snapshot-7.pickle").write_bytes(b"snapshot")
print("said by the program", flush=True)
sys.exit(3 if 'fails late' in sys.argv else 0 if fits else 1)
"""


def without_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package has the command under the name of its module.
    monkeypatch.setattr(import_module("vdnnsim.cli.programs"), "_variables", lambda *_: {})


def pretended(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """Run the command on a program that writes records, and return the exit status and the output."""
    without_runtime(monkeypatch)
    script = folder / "train.py"
    script.write_text(RECORDS)
    options = ["pretend", "--hardware", "rtx_4090", "--out", str(folder / "out"), "--csv", str(folder / "memory.csv")]
    done = CliRunner().invoke(cli, [*options, "--", sys.executable, str(script), *arguments])
    return done.exit_code, " ".join(done.output.split())


def test_memory_of_a_program_is_shown_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 of 23.64 GiB are 135 %."""
    status, output = pretended(tmp_path, monkeypatch, "fits")
    assert status == 0, output
    assert output.startswith("train on a pretended NVIDIA GeForce RTX 4090, 23.6 GiB")
    assert "0 30.0 GiB 31.0 GiB 32.0 GiB 135%" in output
    assert "30.0 GiB 100% forward Net.head train.py:7" in output
    assert "predicted: 500 ms a step" in output
    folder = tmp_path / "out"
    assert sorted(path.name for path in folder.iterdir()) == ["run.json", "snapshot.pickle", "steps.csv"]
    assert (folder / "snapshot.pickle").read_bytes() == b"snapshot"
    assert (folder / "steps.csv").read_text().splitlines()[1] == f"0,1,0,{30 << 30},{31 << 30},{32 << 30}"
    assert (tmp_path / "memory.csv").read_text().splitlines() == [
        "GPU,allocated,reserved,driver shows,of its memory",
        "0,30.0 GiB,31.0 GiB,32.0 GiB,135%",
    ]
    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["hardware"] == "rtx_4090"
    assert manifest["files"] == ["run.json", "snapshot.pickle", "steps.csv"]
    assert manifest["with_memory_enough"] is None


def test_a_program_that_does_not_fit_is_run_with_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """31 GiB reserved and a context fit into no card of 23 to 24 GiB, but into the V100 of 31.7, the smallest above."""
    status, output = pretended(tmp_path, monkeypatch)
    assert status == 0, output
    assert "it does not fit; run again with enough memory" in output
    assert "does not fit: in step 1, in forward of Net.head (train.py:7), PyTorch requested 9.00 GiB" in output
    assert "v100 (31.7 GiB) is the smallest" in output
    folder = tmp_path / "out"
    assert (folder / "again.log").read_text() == "said by the program\n"
    manifest = json.loads((folder / "run.json").read_text())
    assert [each["ended"] for each in manifest["with_memory_enough"]] == ["steady"]
    assert "again.log" in manifest["files"]


def test_the_exit_status_of_a_program_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell has it, 128 more than the number of the signal that ended it."""
    without_runtime(monkeypatch)
    options = ["pretend", "--hardware", "rtx_4090", "--out", str(tmp_path), "--", sys.executable, "-c"]
    assert CliRunner().invoke(cli, [*options, "raise SystemExit(7)"]).exit_code == 7
    killed = CliRunner().invoke(cli, [*options, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"])
    assert killed.exit_code == 128 + 15
    assert "no process of the command used a GPU" in killed.output


def test_a_program_that_was_ended_has_no_status_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It exits with 3 on the way out, after the session ended it; what was asked for is known."""
    status, output = pretended(tmp_path, monkeypatch, "fits", "fails late")
    assert status == 0, output
    assert json.loads((tmp_path / "out" / "run.json").read_text())["exit_status"] == 3


def test_by_default_a_folder_is_named_for_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_runtime(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("")
    done = CliRunner().invoke(
        cli, ["pretend", "--hardware", "rtx_4090", "--", sys.executable, "mine.py", "--batch", "64"]
    )
    assert done.exit_code == 0, done.output
    manifest = json.loads((tmp_path / "reports" / "pretend" / "mine" / "run.json").read_text())
    assert manifest["command"] == [sys.executable, "mine.py", "--batch", "64"]
