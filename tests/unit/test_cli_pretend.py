"""What `vdnnsim pretend` refuses before it runs anything; the rest needs PyTorch's CUDA build (tests/pretend)."""

import sys
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
    ("option", "value", "sentence"),
    [
        ("--gpus", "0", "--gpus: found 0, expected an integer from 1 to 16"),
        ("--gpus", "17", "--gpus: found 17, expected an integer from 1 to 16"),
        ("--steps", "0", "--steps: found 0, expected an integer from 1 on"),
        ("--minutes", "0", "--minutes: found 0, expected a finite number above 0"),
        ("--minutes", "nan", "--minutes: found nan, expected a finite number above 0"),
        ("--hardware", "h101", "'h101' is not a hardware profile; did you mean 'h100_x8'?"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(tmp_path: Path, option: str, value: str, sentence: str) -> None:
    options = {"--hardware": "h100_sxm", "--out": str(tmp_path / "out")} | {option: value}
    told = [text for pair in options.items() for text in pair]
    assert refused(*told, "--", sys.executable, "train.py").startswith(sentence)
    assert not (tmp_path / "out").exists()


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    told = refused("--hardware", "h100_sxm", "--out", str(tmp_path), "--", "no_such_program", "train.py")
    assert told == "no_such_program: there is no such program; a command begins with one: -- python train.py"


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch is a CUDA build")
def test_a_pytorch_without_cuda_is_refused(tmp_path: Path) -> None:
    told = refused("--hardware", "h100_sxm", "--out", str(tmp_path), "--", sys.executable, "train.py")
    assert "a pretended GPU needs PyTorch built for CUDA" in told


def test_a_command_is_asked_for() -> None:
    done = CliRunner().invoke(cli, ["pretend", "--hardware", "h100_sxm"])
    assert done.exit_code == 2
    assert "Missing argument '-- COMMAND...'" in done.output
