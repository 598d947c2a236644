"""The commands `calibrate` and `validate` on a real GPU, cut short: a small network, few sizes, little time.

The whole of a validation is a report, `reports/validation/README.md`.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from calibration.devices.opening import query_gpu, smi_name
from calibration.measure.timing import Extent, TimeBox, WarmUp, time_work
from tests.command_line import csv_rows, vdnnsim
from tests.pretended_gpu import is_pretended
from vdnnsim.hardware.profile import load_profile
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.units import MIB
from vdnnsim.validation.method import FREE_GPU, Task

pytestmark = [pytest.mark.gpu, pytest.mark.pretend]
QUICK = Extent(
    largest_copy=256 * MIB,
    largest_pin=64 * MIB,
    product_side=4096,
    stream_bytes=256 * MIB,
    copies=TimeBox(budget_s=0.05),
    kernels_s=5.0,
    window_s=0.02,
    warm_up=WarmUp(shortest_s=0.02, longest_s=0.02),
)
SETTINGS = ("clocks.applications.graphics", "clocks.max.sm", "power.limit", "persistence_mode", "compute_mode")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("calibration.measure.timing.GPU_EXTENT", QUICK)
    return tmp_path


@pytest.mark.parametrize("options", [[], ["--tf32"], ["--channels-last", "--element-type", "float16"]])
def test_a_profile_that_can_be_used_at_once(folder: Path, options: list[str]) -> None:
    """Of a network with few shapes where cuDNN builds its plans for a GPU that is not there."""
    network = "tiny_residual" if is_pretended() else "resnet50"
    before = query_gpu(SETTINGS, smi_name(0))

    vdnnsim("calibrate", "--gpu", "0", "--network", network, "--batch-size", "8", "--out", "card.yaml", *options)

    assert query_gpu(SETTINGS, smi_name(0)) == before
    server = load_profile(folder / "card.yaml").server
    assert server.gpu.name == torch.cuda.get_device_name(0)
    assert server.gpu.multiprocessors == torch.cuda.get_device_properties(0).multi_processor_count
    assert min(server.gpu.flop_per_s.values()) > 1e12
    assert server.gpu.dram_bytes_per_s > 50e9
    assert server.link.name.startswith(("PCIe generation ", "link to the host"))
    assert server.link.h2d_bytes_per_s > 1e9
    assert server.link.pageable_h2d_bytes_per_s is not None
    assert server.link.copies is not None
    largest = [curve[-1] for curve in server.link.copies.curves.values()]
    assert all(nbytes / seconds > 1e9 for nbytes, seconds in largest)
    assert 1e-7 < server.host.issue_s < 1e-3
    # The driver's version comes from nvidia-smi, which a machine without a GPU has not.
    versions = {"cuda", "torch"} if is_pretended() else {"driver", "cuda", "torch"}
    assert versions <= {name for name, _ in server.provenance}

    rows = csv_rows(folder / "card.kernels.csv")
    timed = [row for row in rows if row["time_s"]]
    assert len(timed) > 0.8 * len(rows)
    assert {row["phase"] for row in timed} == {"forward", "backward data", "backward weights", "backward"}
    scenario = folder / "s.yaml"
    element_type = "float16" if "float16" in options else "float32"
    scenario.write_text(
        "schema_version: 1\n"
        f"workload: {{network: {network}, batch_size: 16, element_type: {element_type}}}\n"
        "hardware: card.yaml\npolicies: [base(p), vdnn_all(m)]\n"
    )
    vdnnsim("check", "card.yaml")
    vdnnsim("run", "s.yaml")


def test_a_short_kernel_is_timed_without_the_host_that_launches_it(folder: Path) -> None:
    """Filling a kilobyte takes a GPU a few microseconds, and Python longer to launch."""
    del folder
    from calibration.devices.cuda import CudaDevice

    device = CudaDevice(0)
    block = device.allocate(1024)

    def fill() -> None:
        block.zero_()

    sample = time_work(device, device.compute, fill, TimeBox(budget_s=0.1))
    device.close()

    assert sample.median < 8e-6


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
