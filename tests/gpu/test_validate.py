"""The command `validate` on a real GPU, cut short. The whole of it is a report, `reports/validation/README.md`."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import csv_rows, vdnnsim
from tests.gpu.test_calibrate import QUICK
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.validation.method import FREE_GPU, Task

pytestmark = [pytest.mark.gpu, pytest.mark.pretend]
POLICIES = ("base(p)", "vdnn_all(m)", "vdnn_conv(p)", "vdnn_dyn")


def test_memory_and_order_are_as_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes asked for within half a percent, blocks around them and segments around these, and waits kept."""
    policies = tuple(resolve_policy(name, known_policies()) for name in POLICIES)
    tasks = Task("alexnet", 32), Task("alexnet", 32, memory_share=0.8), Task("tiny_residual", 48)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("calibration.measure.timing.GPU_EXTENT", QUICK)
    monkeypatch.setattr("vdnnsim.validation.method.FREE_GPU", replace(FREE_GPU, tasks=tasks))
    monkeypatch.setattr("vdnnsim.validation.method.every_policy", lambda _types: policies)
    vdnnsim("calibrate", "--network", "alexnet", "--batch-size", "32", "--out", "here.yaml")
    done = vdnnsim("validate", "--profile", "here.yaml", "--out", "report", status=None)
    assert done.returncode in (0, 3), done.stderr
    rows = csv_rows(Path("report/validation.csv"))
    assert [row["outcome"] for row in rows if row["memory_share"] and row["policy"] == "base(p)"] == ["does not fit"]
    ran = [row for row in rows if row["outcome"] == "ran"]
    assert len(ran) >= 2 * len(POLICIES)
    for row in ran:
        assert row["order"] == "kept"
        assert abs(float(row["requested_error"])) <= 0.005
        requested, allocated, reserved = (
            int(row[f"measured_{kind}_bytes"]) for kind in ("requested", "allocated", "reserved")
        )
        assert requested <= allocated <= reserved
        assert row["measured_offloaded_bytes"] == row["simulated_offloaded_bytes"]
    assert all(row["decision"].startswith("same: ") for row in rows if row["policy"] == "vdnn_dyn")
