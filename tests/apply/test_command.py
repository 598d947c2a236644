"""`vdnnsim apply`: the program runs as it would alone, or is refused."""

import json
import os
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from calibration.apply.script import Script
from tests.apply.scripts import classifier
from vdnnsim.api.script import _note, _say_at_end, follow_script
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


def applied(folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "vdnnsim", "apply", *arguments]
    settings = os.environ | environment
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=settings)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    runpy.run_path(str(script))
    expected = capsys.readouterr().out
    options = ["--hardware", "rtx_4090", "--policy", "save_on_cpu"]
    threads = str(torch.get_num_threads())
    done = applied(
        tmp_path, *options, "--", sys.executable, "-m", "train", PYTHONPATH=str(ROOT), OMP_NUM_THREADS=threads
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    assert "vdnnsim: save_on_cpu(p), for the operators of this CPU: " in done.stderr
    assert "vdnnsim: step 3: forward and backward took " in done.stderr


def test_the_environment_of_the_program() -> None:
    told = 'import os; print(*map(os.environ.get, ("PYTHONPATH", "VDNNSIM_APPLY")), sep="\\n"); raise SystemExit(7)'
    done = applied(ROOT, "--real", "--", sys.executable, "-c", told, PYTHONPATH="/mine")
    assert (done.returncode, done.stderr) == (7, "")
    path, asked = done.stdout.splitlines()
    first, second = path.split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").is_file()
    assert second == "/mine"
    expected = {"hardware": "auto", "memory": None, "policy": "optimal", "real": True}
    assert json.loads(asked).items() > expected.items()


TELL = """
import json, os, pathlib, signal, sys, time
asked = json.loads(os.environ["VDNNSIM_APPLY"])
if "beyond" in sys.argv:
    (pathlib.Path(asked["notes_folder"]) / "beyond.1").touch()
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


@pytest.mark.parametrize(("script", "status", "said"), [("pass", 0, 1), ("exit(2)", 2, 0)])
def test_a_program_that_trains_nothing(capfd: pytest.CaptureFixture[str], script: str, status: int, said: int) -> None:
    """That is said at the end, unless the program failed, which says more."""
    with pytest.raises(SystemExit) as ended:
        cli(["apply", "--", sys.executable, "-c", script], standalone_mode=False)
    assert ended.value.code == status
    assert capfd.readouterr().err.count("so no plan was made") == said


def test_without_a_gpu_a_script_ends_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(SystemExit, match="1"):
        follow_script(hardware="auto", memory=None, policy="optimal")
    assert capsys.readouterr().err.count("\n") == 1


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
    _say_at_end(script, "10GiB", partial(_note, str(tmp_path)))
    assert "3.00 GiB more than the 10GiB" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == [f"beyond.{os.getpid()}"]
