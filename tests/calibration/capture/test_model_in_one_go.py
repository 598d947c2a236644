"""`vdnnsim run --model` and `max-batch --model` with a user's own file, captured by PyTorch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODEL = """\
from torch import nn


def make():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(288, 10))
"""
ASKED = ("--model", "my_model.py:make", "--image", "3x8x8", "--batch", "4", "--hardware", "rtx_4090")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_model.py").write_text(MODEL)
    return tmp_path


def vdnnsim(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from vdnnsim.cli import main; sys.argv[0] = 'vdnnsim'; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_run_captures_and_reports_a_file(folder: Path) -> None:
    done = vdnnsim(folder, "run", *ASKED)

    assert done.returncode == 0, done.stderr
    assert "- It fits: pytorch(p) takes " in done.stdout
    assert "- the model returns no loss, so cross entropy of its output, 4x10, is taken for it" in done.stdout
    assert (folder / "reports" / "my_model-run-rtx_4090" / "memory.png").is_file()
    again = vdnnsim(folder, "run", *ASKED)
    assert again.stdout == done.stdout
    assert "captured my_model.py:make" in done.stderr
    assert "captured my_model.py:make" not in again.stderr
