"""What attacks found, as fixed cases."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorded_traces import new_trace
from tests.toy import ROOT
from tests.unit.test_cli import vdnnsim
from vdnnsim.experiment import run_scenario
from vdnnsim.hardware.profile import load_profile, shipped_profiles
from vdnnsim.scenario.read import read_scenario

SCENARIO = """
schema_version: 1
workload: {network: tiny_linear, batch_size: 4}
hardware: k40m
memory_model: cuda_malloc
policies: [base(p), caffe, layrub_intra, layrub_hybrid, vdnn_all(m)]
"""


@pytest.mark.parametrize(
    "setting",
    ["gpu.handle=1048576 TiB", "host.process=1048576 TiB", "gpu.context=12 GiB", "gpu.memory=1 B", "host.memory=1 B"],
)
def test_a_machine_without_room_is_a_result(tmp_path: Path, setting: str) -> None:
    """Handles or a process of an exabyte; a context that takes all of the memory, or more. Most rows do not fit."""
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = vdnnsim("whatif", "s.yaml", "--set", setting, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    if setting != "host.memory=1 B" and not setting.startswith("host.process"):
        assert "NO *" in done.stdout


@pytest.mark.parametrize("arguments", [b'{"External id": "\xad"}', b"[" * 900 + b"]" * 900])
def test_an_event_whose_arguments_are_none_counts_without_them(tmp_path: Path, arguments: bytes) -> None:
    """They are looked at one by one, after the file was found to be JSON: not UTF-8, or nested deep."""
    trace = json.dumps(new_trace(), separators=(",", ":")).encode()
    at = trace.index(b'"args":') + len(b'"args":')
    (tmp_path / "trace.json").write_bytes(trace[:at] + arguments + trace[trace.index(b"}", at) + 1 :])
    done = vdnnsim("read", "trace.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("gpus", [2, 4])
def test_nothing_on_several_gpus_is_faster_than_the_oracle(tmp_path: Path, gpus: int) -> None:
    """Which waits for nothing but the links that all share; gradients that go through the host were once no exception.

    100 % is the most: `layrub_intra` moves maps, and `base(p)` does not.
    """
    machine = SCENARIO.replace("k40m", f"p100_x{gpus}").replace("tiny_linear", "alexnet")
    (tmp_path / "s.yaml").write_text(f"{machine}gpus: {gpus}\ngradients: cpu\n")
    rows = run_scenario(read_scenario(tmp_path / "s.yaml")).slowest
    assert "layrub_intra" in {row.policy for row in rows}
    assert all(row.performance_ratio <= 1 + 1e-9 for row in rows)


def test_where_vdnnsim_is_installed_stands_in_no_result(tmp_path: Path) -> None:
    """Or equal questions would have other bytes on another machine."""
    for profile in shipped_profiles():
        names = [name for name, _ in profile.sources]
        assert names[0] == f"hw_profiles/{profile.server.name}.yaml"
        assert all(name.startswith("hw_profiles/") for name in names)
    (tmp_path / "own.yaml").write_text(
        (Path(shipped_profiles()[0].file).parent / "titan_x_maxwell.yaml")
        .read_text(encoding="utf-8")
        .replace("name: titan_x_maxwell", "name: own"),
        encoding="utf-8",
    )
    assert load_profile(tmp_path / "own.yaml").sources[0][0] == str(tmp_path / "own.yaml")


def test_a_file_that_is_called_as_a_library_is_no_library(tmp_path: Path) -> None:
    """The working directory comes last; a user's policies lie there."""
    (tmp_path / "click.py").write_text("raise RuntimeError")
    words = (sys.executable, "-m", "vdnnsim", "--help")
    subprocess.run(words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
