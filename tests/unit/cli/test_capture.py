"""`vdnnsim capture`: output, files, and refusals before any code of the user's runs."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.command_line import csv_rows
from vdnnsim.cli import cli
from vdnnsim.dnn.captured_file import read_captured_step
from vdnnsim.errors import VdnnsimError

NET = """
from torch import nn


def make():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 7))
"""

pytestmark = pytest.mark.usefixtures("in_a_fork")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a user's file and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["capture", *arguments])


def refused(*arguments: str) -> str:
    done = run(*arguments)
    assert isinstance(done.exception, VdnnsimError), done.output
    return str(done.exception)


def test_a_model_is_captured_printed_and_written(folder: Path) -> None:
    """Weights 3 x 5 + 5 + 5 x 7 + 7 = 62, of 4 bytes; two states of each. Eight rows of three floats go in.

    Backward needs what ReLU gives (8 x 5 floats: for itself and the product after it), and of the cross entropy the
    logarithms of probabilities (8 x 7 floats) and its sum of weights (one float).
    """
    done = run("net.py:make", "--batch", "8", "--image", "3", "--csv", "net.csv")
    assert done.exit_code == 0, done.output
    assert "net.py:make: 8 images, training, float32, adamw, as cuda 8.9, torch " in done.stdout
    assert "- the model returns no loss, so cross entropy of its output, 8x7, is taken for it" in done.stdout
    assert "wrote net.step.json; scenarios name it as `workload: {step: net.step.json}`" in done.stderr
    step, _ = read_captured_step(folder / "net.step.json")
    assert (step.parameters, step.parameter_bytes) == (62, 248)
    assert step.saved_bytes == 8 * 5 * 4 + 8 * 7 * 4 + 4
    again = run("net.py:make", "--batch", "8", "--image", "3", "--out", "again.json")
    assert "net.py:make is as it was captured before; " in again.stderr
    assert (folder / "again.json").read_bytes() == (folder / "net.step.json").read_bytes()
    rows = {row["memory"]: int(row["bytes"]) for row in csv_rows(folder / "net.csv")}
    assert (rows["parameters"], rows["optimizer states"], rows["inputs"]) == (248, 496, 96)
    assert (rows["saved for backward"], rows["peak of live bytes"]) == (step.saved_bytes, step.peak_live_bytes)


def test_inference_with_real_tensors(folder: Path) -> None:
    done = run("net.py:make", "--batch", "1", "--image", "3", "--mode", "inference", "--real")
    assert "net.py:make: 1 image, inference, float32, as cpu, torch " in done.stdout
    assert "saved for backward" not in done.stdout
    assert read_captured_step(folder / "net.step.json")[0].device == "cpu"


def test_all_ranks_of_a_pipeline_are_written(folder: Path) -> None:
    """Each of two has a layer of 4 x 4 + 4 parameters."""
    (folder / "net.py").write_text(
        "from torch import nn\n\n\ndef make():\n    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))\n",
        encoding="utf-8",
    )
    wanted = "net.py:make", "--batch", "2", "--image", "4", "--parallel", "pp=2", "--accumulate", "2"

    done = run(*wanted, "--out", "made.step.json")

    assert "workload: {step: [made.0.step.json, made.1.step.json]}" in done.stderr, done.output
    steps = [read_captured_step(folder / f"made.{position}.step.json")[0] for position in (0, 1)]
    assert [(each.position, each.parameters) for each in steps] == [(0, 4 * 4 + 4), (1, 4 * 4 + 4)]


def test_a_model_is_captured_for_the_card_of_a_profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's A100 is of compute capability 8.0."""
    words = ("net.py:make", "--batch", "1", "--image", "3", "--hardware", "a100_40gb")
    assert "as cuda 8.0, torch " in run(*words).stdout
    assert read_captured_step(folder / "net.step.json")[0].device == "cuda 8.0"
    assert refused(*words, "--real").startswith("--hardware: found with real tensors")
    monkeypatch.setattr("calibration.pretend.card.compute_capability", lambda _: None)
    assert refused(*words) == (
        "--hardware: the compute capability of a100_40gb is unknown; expected it in the `gpu` of its profile"
    )


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (("net.py:makes", "--image", "3"), "net.py: 'makes' is not a name in this file; did you mean 'make'?"),
        (("nett.py:make",), "'nett.py' is not a file in"),
        (("net.py:make", "--image", "3x"), "--image: found '3x', expected sizes, channels first, as 3x224x224"),
        (("net.py:make", "--batch", "0"), "--batch: found 0, expected an integer from 1 on"),
        (("net.py:make", "--mode", "train"), "--mode: 'train' is not a mode; did you mean 'training'?"),
        (
            ("net.py:make", "--precision", "qq"),
            "--precision: 'qq' is not a precision; expected one of float32, tf32, bf",
        ),
        (("net.py",), "'net.py' does not say what makes the model, expected net.py:NAME, where NAME is one of make"),
        (("net.py:make", "--image", "3", "--out", "."), ".: cannot be written: Is a directory"),
        (("net.py:make", "--image", "4"), "net.py:make: "),
    ],
)
def test_wrong_input_is_refused_in_one_line(folder: Path, arguments: tuple[str, ...], refusal: str) -> None:
    message = refused(*(() if "--batch" in arguments else ("--batch", "8")), *arguments)
    assert message.startswith(refusal)
    assert "\n" not in message
    assert list(folder.glob("*.json")) == []
