"""Commands on pretended GPUs in processes without one: their environment, start, end and records."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import calibration.pretend
from calibration.pretend import __main__ as program
from calibration.pretend.build import Runtime, TorchBuild
from calibration.pretend.card import OperatorRates
from calibration.pretend.environment import package_folders
from calibration.pretend.session import Outcome, Task, run_command
from vdnnsim.errors import InputError
from vdnnsim.hardware.server import Origin

RATES = OperatorRates({"float32": 1e12}, {"float32": 1e12}, 1e12, 1e-6, Origin.ASSUMED)
TASK = Task(10, whole=False, rates=RATES)
RECORD: dict[str, object] = {
    **dict.fromkeys(("gpus", "steps", "out_of_memory", "refused"), ()),
    **dict.fromkeys(("steady_from_step", "step_s")),
    "torch": "2.14.1",
    "operator_s": {},
    "zeros_read": [["train.py:3", 2]],
    "ended": "by itself",
    "error": "",
}


def ran(folder: Path, program: str, limit_s: float = 60.0, **variables: str) -> Outcome:
    return run_command([sys.executable, "-c", program], variables, TASK, limit_s, folder)


def test_command_gets_its_task_and_its_exit_status_is_returned(tmp_path: Path) -> None:
    program = """
import json, os, pathlib, sys
task = json.loads((pathlib.Path(os.environ["VDNNSIM_PRETEND_SESSION"]) / "task.json").read_text())
assert task["steady_steps"] == 10 and task["rates"]["dram_bytes_per_s"] == 1e12, task
sys.exit(int(os.environ["STATUS"]))
"""
    assert ran(tmp_path, program, STATUS="7") == Outcome(7, (), ())


def test_records_of_processes_are_read_by_rank(tmp_path: Path) -> None:
    for process, rank in ((7, 1), (8, 0)):
        (tmp_path / f"snapshot-{process}.pickle").write_bytes(b"%d" % process)
        (tmp_path / f"process-{process}.json").write_text(json.dumps({**RECORD, "process": process, "rank": rank}))
    outcome = ran(tmp_path, "")
    assert [each.process for each in outcome.processes] == [8, 7]
    assert outcome.snapshots == (b"8", b"7")
    assert outcome.processes[0].zeros_read == (("train.py:3", 2),)


def test_time_limit_closes_the_sessions_pipe(tmp_path: Path) -> None:
    """The program waits for the end of a pipe that nobody writes to, and then ends with 5."""
    program = """
import os, pathlib, sys
with (pathlib.Path(os.environ["VDNNSIM_PRETEND_SESSION"]) / "open").open("rb") as pipe:
    pipe.read(1)
sys.exit(5)
"""
    began = time.monotonic()
    assert ran(tmp_path, program, limit_s=1.0).returncode == 5
    assert time.monotonic() - began >= 1.0


def test_a_command_that_ignores_the_time_limit_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.pretend.session._GRACE_S", 0.1)
    assert ran(tmp_path, "import time; time.sleep(600)", limit_s=0.5).returncode == -signal.SIGKILL


def test_an_interrupt_is_left_to_the_command(tmp_path: Path) -> None:
    """The command interrupts this process, which goes on waiting for it, and then ends by itself."""
    program = "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(0.2)"
    assert ran(tmp_path, program).returncode == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("")
    with pytest.raises(InputError, match=r"train\.py: cannot be run: permission denied"):
        run_command([str(program)], {}, TASK, 1.0, tmp_path)


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def other_python(folder: Path) -> Path:
    """A Python of another environment, with a folder on its path that this one's lacks."""
    folder.mkdir()
    path = folder / "python3"
    script(path, f'#!/bin/sh\nPYTHONPATH={folder}/packages exec {sys.executable} "$@"\n')
    return path


@pytest.mark.parametrize("first_line", ["", "#!{python}", "#!/usr/bin/env python3"])
def test_packages_are_those_of_a_python_or_of_the_one_that_a_script_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_line: str
) -> None:
    python = other_python(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    tool = script(tmp_path / "torchrun", f"{first_line.format(python=python)}\nimport torch\n")
    assert f"{tmp_path}/bin/packages" in package_folders(tool if first_line else str(python))


def test_other_programs_use_this_python_or_are_refused(tmp_path: Path) -> None:
    assert package_folders(script(tmp_path / "job", "#!/bin/sh\npython train.py\n")) == sys.path
    # Missing program is refused.
    with pytest.raises(InputError, match="no_such: there is no such program"):
        package_folders("no_such")
    # A python that fails is refused.
    broken = script(tmp_path / "python", "#!/bin/sh\nexit 3\n")
    with pytest.raises(InputError, match="does not say where it finds packages"):
        package_folders(broken)


RUNTIME = Runtime(TorchBuild("2.14.1", "13.0", Path("/real"), ()), (Path("/built/libcudart.so.13"),))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "find_torch", lambda: RUNTIME.torch)
    monkeypatch.setattr(program, "build_runtime", lambda _: RUNTIME)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(program.main, arguments)
    return result.exit_code, result.stderr


@pytest.mark.usefixtures("built")
def test_command_replaces_this_process_with_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, tuple[str, ...], dict[str, str]]] = []
    monkeypatch.setattr(os, "execvpe", lambda *arguments: called.append(arguments))
    code, _ = run(
        "--hardware", "rtx_4090", "--gpus", "2", "--copies", "delayed", "--", sys.executable, "x.py", "--gpus"
    )
    assert code == 0
    [(file, command, variables)] = called
    assert (file, command) == (sys.executable, (sys.executable, "x.py", "--gpus"))
    assert variables["VDNNSIM_PRETEND_NAME"] == "NVIDIA GeForce RTX 4090"
    assert (variables["VDNNSIM_PRETEND_GPUS"], variables["VDNNSIM_PRETEND_COPIES"]) == ("2", "delayed")
    assert variables["PATH"] == os.environ["PATH"]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("hardware", "command", "message"),
    [("rtx_4090", "no-such-command", "no-such-command"), ("rtx_4091", sys.executable, "rtx_4090")],
)
def test_unknown_command_or_card_is_refused_in_one_line(hardware: str, command: str, message: str) -> None:
    code, text = run("--hardware", hardware, "--", command)
    assert code == 1
    assert message in text
    assert text.count("\n") == 1


STARTUP = Path(calibration.pretend.__file__).parents[1] / "startup"


def output_of(program: str, *folders: Path, **variables: str) -> str:
    """Return the output of a program whose Python finds the startup first, then some folders."""
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(map(str, (STARTUP, *folders)))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def test_the_users_own_modules_are_found_as_without_the_recorder(tmp_path: Path) -> None:
    """Another sitecustomize, and a `peak`, which the recorder has too; nothing of PyTorch is imported."""
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    (tmp_path / "peak.py").write_text("name = 'mine'")
    program = """
import peak, importlib.util, sys
print(peak.name, importlib.util.find_spec('inside'))
print(any(name.endswith('.recording') for name in sys.modules), 'torch' in sys.modules)
"""
    output = output_of(program, tmp_path, VDNNSIM_PRETEND_SESSION=str(tmp_path))
    assert output == "mine\nmine None\nFalse False\n"


def test_recording_waits_until_pytorch_is_imported(tmp_path: Path) -> None:
    """`find_spec` alone does not start it, as `vdnnsim calibrate` and transformers call it; two callbacks run once."""
    (tmp_path / "torch.py").write_text("print('imported')")
    program = """
import importlib.util
import vdnnsim_pretend_inside.imports as begin, sys
sys.meta_path.remove(sys.meta_path[0])
begin.when_imported('torch', lambda: print('first'))
begin.when_imported('torch', lambda: print('second'))
assert importlib.util.find_spec('torch') is not None
print('found')
import torch
import torch
"""
    assert output_of(program, tmp_path, VDNNSIM_PRETEND_SESSION=str(tmp_path)) == "found\nimported\nfirst\nsecond\n"
