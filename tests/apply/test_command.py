"""`vdnnsim apply`: the program runs as it would alone, or is refused."""

import os
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from calibration.apply.script import Script
from tests.apply.scripts import classifier
from vdnnsim.api.script import _say_at_end, follow_script
from vdnnsim.cli import cli
from vdnnsim.errors import PlanWarning, VdnnsimError

ROOT = Path(__file__).parents[2]


TRAIN = """
import subprocess, sys, torch
print(subprocess.check_output([sys.executable, "-c", "print('of a process of its own')"], text=True))
torch.manual_seed(0)
parts = [torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 4)]
model = torch.nn.Sequential(*parts)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(4):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(4, (8,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex())
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    runpy.run_path(str(script))
    expected = capsys.readouterr().out
    options = ["--hardware", "rtx_4090", "--policy", "save_on_cpu"]
    done = subprocess.run(
        [sys.executable, "-m", "vdnnsim", "apply", *options, "--", sys.executable, "-m", "train"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    assert "vdnnsim: save_on_cpu(p): " in done.stderr
    assert "vdnnsim: step 3: forward and backward took " in done.stderr


def test_the_command_executes_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, list[str], dict[str, str]]] = []

    def become(*what: Any) -> None:  # noqa: ANN401
        started.append(what)
        sys.exit(7)

    monkeypatch.setattr("os.execvpe", become)
    monkeypatch.setenv("PYTHONPATH", "/mine")
    done = CliRunner().invoke(cli, ["apply", "--real", "--", sys.executable, "train.py", "--lr", "1"])
    assert done.exit_code == 7
    ((program, command, variables),) = started
    assert [program, *command] == [sys.executable, sys.executable, "train.py", "--lr", "1"]
    first, second = variables["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").is_file()
    assert second == "/mine"
    assert variables["VDNNSIM_APPLY"] == '{"hardware": "auto", "memory": null, "policy": "optimal", "real": true}'


TELL = """
import json, os, pathlib, signal, sys, time
asked = json.loads(os.environ["VDNNSIM_APPLY"])
if "beyond" in sys.argv:
    (pathlib.Path(asked["excess_folder"]) / "1").touch()
if "signal" in sys.argv:
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(9))
    os.kill(os.getppid(), signal.SIGUSR1)
    time.sleep(60)
sys.exit(3 if "fails" in sys.argv else 0)
"""


@pytest.mark.parametrize(
    ("words", "status"),
    [(["kept"], 0), (["beyond"], 5), (["fails"], 3), (["beyond", "fails"], 3), (["signal"], 9)],
)
def test_exit_statuses(words: list[str], status: int) -> None:
    """5 where a process reserved more, unless the program fails; signals reach it."""
    done = CliRunner().invoke(cli, ["apply", "--memory", "20GiB", "--", sys.executable, "-c", TELL, *words])
    assert done.exit_code == status


def test_another_python_is_named(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    done = CliRunner().invoke(cli, ["apply", "--memory", "20GiB", "--", str(other), "train.py"])
    assert f"is {other}, not the Python of vdnnsim" in done.output
    assert (
        "not the Python"
        not in CliRunner().invoke(cli, ["apply", "--memory", "1GiB", "--", sys.executable, "-V"]).output
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--", "no_such_program"], "no_such_program: "),
        (["--memory", "much", "--", sys.executable], "--memory: found 'much'"),
        (["--hardware", "h101", "--", sys.executable], "'h101'"),
        (["--policy", "best", "--", sys.executable], "'best'"),
    ],
)
def test_the_command_refuses(arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(cli, ["apply", *arguments])
    assert isinstance(done.exception, VdnnsimError), done.output
    assert str(done.exception).startswith(sentence)


def test_a_script_without_a_plan_says_why_at_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: list[Callable[[], None]] = []
    monkeypatch.setattr("atexit.register", lambda end, *given: ends.append(partial(end, *given)))
    watching: list[Script] = []
    monkeypatch.setattr(Script, "watch", lambda script: watching.append(script))  # noqa: PLW0108  # a method is bound
    follow_script(hardware="rtx_4090", memory=None, policy="optimal")
    ((end,), (script,)) = ends, watching
    end()
    assert capsys.readouterr().err == ""
    script._enters(classifier(), ())  # noqa: SLF001
    script.leave()
    end()
    assert "no plan was applied: no backward" in capsys.readouterr().err


def test_warnings_of_a_plan_are_a_line_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others are shown as before; both are shown, though pytest raises warnings as errors."""
    others: list[str] = []
    monkeypatch.setattr("atexit.register", lambda *_: None)
    monkeypatch.setattr(Script, "watch", lambda _: None)
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: others.append(str(message)))
    follow_script(hardware="rtx_4090", memory=None, policy="optimal")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("a step left it", PlanWarning, stacklevel=1)
        warnings.warn("of the script", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "vdnnsim: a step left it\n"
    assert others == ["of the script"]


def test_excess_memory_is_reported_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = Script(lambda *_, **__: pytest.fail("nothing is planned"), lambda _: None)
    script.end = lambda: 3 * 2**30  # type: ignore[method-assign]
    _say_at_end(script, "10GiB", str(tmp_path))
    assert "3.00 GiB more than the 10GiB" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == [str(os.getpid())]
