"""The command line as scripts rely on it: commands, options, streams and exit codes."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.command_line import ROOT, SMALL, csv_rows, vdnnsim
from vdnnsim.cli import cli
from vdnnsim.units import format_bytes

OWN_POLICY = """
from typing import ClassVar
from vdnnsim.policies.base import Base

class Mine(Base, frozen=True, kw_only=True):
    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "keeps everything, under a name of its own"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.mark.parametrize(
    ("words", "meant"), [(("run", "--seq-len", "8"), "--tokens"), (("max-batch", "--dtype"), "--precision")]
)
def test_an_option_of_another_tool_names_ours(words: Sequence[str], meant: str) -> None:
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, f"'{meant}'" in done.output) == (2, True)


def test_an_option_that_the_command_lacks_is_not_named() -> None:
    assert "--tokens" not in CliRunner().invoke(cli, ("doctor", "--seq-len", "8")).output


def test_run_reports_written_bytes_and_removed_files(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One policy has no comparison, no trace of a second, and no timeline where nothing waits."""
    vdnnsim("run", "small.yaml", folder=scenario.parent)
    scenario.write_text(SMALL.replace(", vdnn_all(m)", ""))
    done = vdnnsim("run", "small.yaml", folder=scenario.parent)
    assert done.stderr.startswith("wrote 6 files, removed 3 of an earlier report, to reports/small/; read ")
    monkeypatch.setattr("vdnnsim.report.folder._LARGE_BYTES", 0)
    done = vdnnsim("run", "small.yaml", folder=scenario.parent)
    nbytes = sum(path.stat().st_size for path in (scenario.parent / "reports" / "small").iterdir())
    assert done.stderr.startswith(f"wrote 6 files ({format_bytes(nbytes)}) to reports/small/; read ")


@pytest.mark.parametrize(
    ("words", "name", "noun"),
    [(["run"], "report.md", "run"), (["compare", "--policies", "base"], "compare.csv", "comparison")],
)
def test_foreign_files_are_not_overwritten(scenario: Path, words: list[str], name: str, noun: str) -> None:
    (scenario.parent / name).write_text("mine")
    done = vdnnsim(*words, "small.yaml", "--out", ".", folder=scenario.parent, status=1)
    assert done.stdout == ""
    assert done.stderr.startswith(f"vdnnsim: {name}: was not written by an earlier {noun}; ")
    assert {path.name for path in scenario.parent.iterdir()} == {name, "small.yaml"}
    assert (scenario.parent / name).read_text() == "mine"


def test_run_prints_the_table_and_writes_the_folder(scenario: Path) -> None:
    """Results on standard output, talk on standard error, files in reports/<scenario name>/, exit 0."""
    done = vdnnsim("run", "small.yaml", "--csv", "table.csv", folder=scenario.parent)
    assert "vdnn_all(m)" in done.stdout
    assert done.stderr.startswith("wrote 9 files to reports/small/")
    folder = scenario.parent / "reports" / "small"
    assert (folder / "results.csv").read_bytes() == (scenario.parent / "table.csv").read_bytes()
    rows = csv_rows(folder / "results.csv")
    assert [row["policy"] for row in rows] == ["base(p)", "vdnn_all(m)"]


def test_equal_input_gives_equal_bytes(scenario: Path) -> None:
    for folder in ("a", "b"):
        command = [sys.executable, "-c", "from vdnnsim.cli import main; main()", "run", "small.yaml", "--out", folder]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONHASHSEED": {"a": "1", "b": "2"}[folder]}
        subprocess.run(command, cwd=scenario.parent, env=environment, check=True, capture_output=True)
    first = {path.name: path.read_bytes() for path in (scenario.parent / "a").iterdir()}
    second = {path.name: path.read_bytes() for path in (scenario.parent / "b").iterdir()}
    assert first == second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.yaml"], "vdnnsim: missing.yaml: cannot be read: no such file or directory"),
        (["check", "small.yaml", "--policy-module", "nowhere"], "vdnnsim: policy module 'nowhere': cannot be imported"),
        (["run", "small.yaml", "--out", "small.yaml"], "vdnnsim: small.yaml:"),
        (["list", "networks", "--csv", "small.yaml/x.csv"], "vdnnsim: small.yaml/x.csv: "),
    ],
)
def test_wrong_input_is_one_line_and_exit_status_1(scenario: Path, arguments: list[str], message: str) -> None:
    done = vdnnsim(*arguments, folder=scenario.parent, status=1)
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", [["--out", ""], ["--csv", ""]])
def test_an_empty_path_is_not_the_working_directory(scenario: Path, option: list[str]) -> None:
    done = vdnnsim("run", "small.yaml", *option, folder=scenario.parent, status=1)
    assert done.stderr == f"vdnnsim: {option[0]}: found '', expected a path\n"
    assert [path.name for path in scenario.parent.iterdir()] == ["small.yaml"]


def test_click_does_not_check_whether_a_file_is_readable(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    vdnnsim("check", "small.yaml", folder=scenario.parent)


def test_wrong_usage_is_exit_status_2(scenario: Path) -> None:
    vdnnsim("run", folder=scenario.parent, status=2)
    vdnnsim("fly", folder=scenario.parent, status=2)


def test_check_describes_a_file(scenario: Path) -> None:
    done = vdnnsim("check", "small.yaml", folder=scenario.parent)
    profile = vdnnsim("check", str(ROOT / "hw_profiles" / "titan_x_maxwell.yaml"), folder=scenario.parent)
    assert done.stdout == (
        "small.yaml: a scenario: alexnet (8), float32, training on titan_x_maxwell, under base(p), vdnn_all(m)\n"
    )
    assert "a hardware profile: NVIDIA GeForce GTX Titan X (Maxwell) with 12.0 GiB" in profile.stdout
    assert [path.name for path in scenario.parent.iterdir()] == ["small.yaml"]


def test_a_policy_module_in_the_working_folder_is_found(scenario: Path) -> None:
    (scenario.parent / "own.py").write_text(OWN_POLICY)
    scenario.write_text(SMALL.replace("base(p)", "mine(p)"))
    without = vdnnsim("check", "small.yaml", folder=scenario.parent, status=1)
    done = vdnnsim("run", "small.yaml", "--policy-module", "own", folder=scenario.parent)
    assert "'mine' is not a policy" in without.stderr
    assert "mine(p)" in done.stdout
    del sys.modules["own"]


def test_a_module_beside_a_policy_shadows_no_library(scenario: Path) -> None:
    (scenario.parent / "own.py").write_text(OWN_POLICY)
    (scenario.parent / "simpy.py").write_text("raise ImportError('mine')")
    scenario.write_text(SMALL.replace("base(p)", "mine(p)"))
    code = "from vdnnsim.cli import main; main()"
    command = (sys.executable, "-P", "-c", code, "run", "small.yaml", "--policy-module", "own")
    done = subprocess.run(
        command, cwd=scenario.parent, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("body", "first_line", "frames"),
    [
        ("return None", "vdnnsim: mine(p): plan: found nothing, expected a TrainingPlan", False),
        ("return 1 / 0", "vdnnsim: mine(p): plan: ZeroDivisionError: division by zero", True),
    ],
)
def test_a_policy_that_cannot_plan_is_named_first(scenario: Path, body: str, first_line: str, *, frames: bool) -> None:
    (scenario.parent / "own.py").write_text(f"{OWN_POLICY}\n    def plan(self, setting):\n        {body}\n")
    scenario.write_text(SMALL.replace("base(p), vdnn_all(m)", "mine(p)"))
    done = vdnnsim("run", "small.yaml", "--policy-module", "own", folder=scenario.parent, status=1)
    first, *rest = done.stderr.splitlines()
    assert first == first_line
    assert any("own.py" in line for line in rest) == bool(rest) == frames
    assert not (scenario.parent / "reports").exists()
    del sys.modules["own"]


def test_own_policies_that_fail_beside_others_are_exit_status_1(scenario: Path) -> None:
    """All is told of what has a plan, and on standard error why the others have none; a misfit is no failure."""
    (scenario.parent / "own.py").write_text(f"{OWN_POLICY}\n    def plan(self, setting):\n        return 1 / 0\n")
    scenario.write_text(SMALL.replace("vdnn_all(m)", "mine(p), mine(m)"))
    words = ("small.yaml", "--policy-module", "own")
    run = vdnnsim("run", *words, folder=scenario.parent, status=1)
    compared = vdnnsim("compare", *words, "--policies", "base(p),mine(p),mine(m)", folder=scenario.parent, status=1)
    for done in (run, compared):
        assert "base(p)" in done.stdout
        why = "plan: ZeroDivisionError: division by zero"
        assert done.stderr.splitlines()[-1] == f"vdnnsim: mine(p): {why}; mine(m): {why}"
    assert "1 of 1 policy fits" in compared.stdout
    assert "; 2 without a plan" in " ".join(compared.stdout.split())
    del sys.modules["own"]
    mend = "    def misfit(self, workload, memory_model=None):\n        return 'needs another network'\n"
    (scenario.parent / "own.py").write_text(f"{OWN_POLICY}\n{mend}")
    vdnnsim("run", *words, folder=scenario.parent)
    del sys.modules["own"]


def test_the_surface_is_frozen() -> None:

    def options(command: click.Command) -> set[str]:
        return {name for each in command.params for name in each.opts if name.startswith("--")}

    surface: dict[str, set[str]] = {}
    for name, command in sorted(cli.commands.items()):
        if isinstance(command, click.Group):
            surface |= {f"{name} {sub}": options(each) for sub, each in sorted(command.commands.items())}
        else:
            surface[name] = options(command)
    table = {"--csv", "--json"}
    capture = {"--channels-last", "--image", "--inputs", "--mode", "--optimizer", "--precision"}
    capture |= {"--in-backward", "--lora", "--loss-chunks", "--param-groups", "--tokens"}
    ranks = {"--checkpointing", "--parallel", "--real"}
    parallel, capture = capture, capture | ranks
    scenario = {
        *capture,
        "--accumulate",
        "--allocator",
        "--batch",
        "--execution",
        "--hardware",
        "--model",
        "--policy-module",
    }
    expected: dict[str, set[str]] = {
        "apply": {"--hardware", "--memory", "--policy", "--real"},
        "calibrate": {*table, "--batch-size", "--channels-last", "--device", "--element-type", "--gpu", "--network"}
        | {"--out", "--tf32"},
        "capture": {*table, *capture, "--accumulate", "--batch", "--compile", "--hardware", "--out", "--pretend"},
        "check": {"--policy-module"},
        "claims": {*table, "--paper"},
        "compare": {*scenario, *table, "--out", "--policies"},
        "doctor": table,
        "examples": set(),
        "frontier": {*scenario, *table, "--capacities", "--out", "--policy", "--time-limit"},
        "list hardware": {*table, "--sources", "--tree"},
        "list networks": table,
        "list policies": {*table, "--policy-module"},
        "machines": {*scenario, *table, "--out", "--policy", "--price", "--time-limit"},
        "max-batch": {*scenario, *table, "--longest", "--policy", "--time-limit"},
        "new hardware": set(),
        "parallel": {
            *table,
            *parallel,
            "--accumulate",
            "--batch",
            "--gpus",
            "--hardware",
            "--layout",
            "--model",
            "--out",
        },
        "pretend": {*table, "--gpus", "--hardware", "--minutes", "--out", "--steps", "--whole"},
        # Its options are those of what it reads: `test_read.py`.
        "read": set(),
        "run": {*scenario, *table, "--out", "--policy", "--require-fit", "--time-limit"},
        "sweep": {*table, "--cluster", "--out", "--parquet", "--policy-module", "--retry-failed", "--status"}
        | {"--workers", "--yes"},
        "validate": {*table, "--device", "--gpu", "--out", "--profile"},
        "whatif": {*scenario, *table, "--policy", "--require-fit", "--set"},
    }
    assert surface == expected
