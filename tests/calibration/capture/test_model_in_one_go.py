"""`vdnnsim run --model` with a user's own file, captured by PyTorch in a process of its own."""

from pathlib import Path

import pytest

from tests.command_line import vdnnsim

MODEL = """\
from torch import nn


def make():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(288, 10))
"""
ASKED = ("run", "--model", "my_model.py:make", "--image", "3x8x8", "--batch", "4", "--hardware", "rtx_4090")


def test_run_captures_and_reports_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time it is not captured again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "my_model.py").write_text(MODEL)
    done, again = (vdnnsim(*ASKED, folder=tmp_path) for _ in range(2))

    assert "- It fits: pytorch(p) takes " in done.stdout
    assert "- the model returns no loss, so cross entropy of its output, 4x10, is taken for it" in done.stdout
    assert (tmp_path / "reports" / "my_model-run-rtx_4090" / "memory.png").is_file()
    assert again.stdout == done.stdout
    assert "captured my_model.py:make" in done.stderr
    assert "captured my_model.py:make" not in again.stderr
