"""Regressions that hostile inputs found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import vdnnsim
from tests.recorded_traces import new_trace
from tests.toy import ROOT, toy_setting
from tests.two_gpus import COSTS, WORKLOAD, replay_two
from vdnnsim.hardware.profile import load_profile, shipped_profiles
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.base import Base
from vdnnsim.policies.layrub import LayrubIntra
from vdnnsim.report.caveats import known
from vdnnsim.scenario.experiment import run_scenario
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
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = vdnnsim("whatif", "s.yaml", "--set", setting, folder=tmp_path)
    assert done.stderr == ""
    if setting != "host.memory=1 B" and not setting.startswith("host.process"):
        assert "NO *" in done.stdout


@pytest.mark.parametrize("arguments", [b'{"External id": "\xad"}', b"[" * 900 + b"]" * 900])
def test_an_event_with_unreadable_arguments_counts_without_them(tmp_path: Path, arguments: bytes) -> None:
    trace = json.dumps(new_trace(), separators=(",", ":")).encode()
    at = trace.index(b'"args":') + len(b'"args":')
    (tmp_path / "trace.json").write_bytes(trace[:at] + arguments + trace[trace.index(b"}", at) + 1 :])
    vdnnsim("read", "trace.json", folder=tmp_path)


def test_weight_gradients_first_may_be_faster_than_the_oracle(tmp_path: Path) -> None:
    """`layrub_intra` may be faster than base(p) on several GPUs, and that is reported.

    On two toy GPUs (`tests.two_gpus`) backward of fc begins at 4 s, each of its kernels takes 1 s, and its exchange, as
    that of conv1 behind it, lasts 5.8 s and 29 s: base(p) computes the gradient of data first, then that of weights,
    and ends at 6 + 34.8 s; layrub_intra the other way round, at 5 + 34.8 s.
    """
    for policy, end_s in ((Base(), 40.8), (LayrubIntra(), 39.8)):
        plan = aggregate_gradients(policy.plan(toy_setting(WORKLOAD, COSTS)), Aggregation.CPU)
        assert replay_two(plan).iteration_s == pytest.approx(end_s)
    machine = SCENARIO.replace("k40m", "p100_x2").replace("tiny_linear", "llama_1b").replace("cuda_malloc", "ideal")
    (tmp_path / "s.yaml").write_text(f"{machine}gpus: 2\ngradients: cpu\n".replace("size: 4", "size: 1"))
    result = run_scenario(read_scenario(tmp_path / "s.yaml"))
    beyond = [row.policy for row in result.slowest if row.performance_ratio > 1]
    assert beyond == ["layrub_intra"]
    assert known(result)[-1].startswith("Faster than base(p) with unlimited memory: layrub_intra: ")


def test_results_name_no_path_of_the_installation(tmp_path: Path) -> None:
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


def test_a_file_in_the_working_directory_shadows_no_library(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise RuntimeError")
    words = (sys.executable, "-m", "vdnnsim", "--help")
    subprocess.run(words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
