import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibration.pretend import __main__ as program
from calibration.pretend.build import Runtime, TorchBuild

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
