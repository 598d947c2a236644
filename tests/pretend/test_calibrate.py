"""`vdnnsim calibrate --gpu 0` on a pretended GPU finds the rates that were set; its context, cache and timing."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from calibration.devices.cuda import CudaDevice
from calibration.measure.timing import TimeBox, time_work
from tests.command_line import vdnnsim
from tests.gpu.test_calibrate import QUICK
from tests.pretended_gpu import setting
from vdnnsim.hardware.profile import load_profile
from vdnnsim.units import MIB, ElementType

pytestmark = pytest.mark.pretend

SHORT = replace(
    QUICK,
    largest_pin=256 * MIB,
    product_side=8192,
    stream_bytes=64 * MIB,
    copies=TimeBox(budget_s=0.02),
    kernels_s=0.1,
    window_s=0.01,
)


def test_a_calibration_finds_what_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy lasts latency + bytes / rate, a product 2 m n k / rate, pinning latency + bytes / rate.

    Marks resolve half a microsecond and a launch takes a few, which a product of 16 ms and copies of 5 ms hardly feel:
    rates within 1 %. A latency of microseconds is found to a mark's worth.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("calibration.measure.timing.GPU_EXTENT", SHORT)

    vdnnsim("calibrate", "--network", "tiny_linear", "--batch-size", "8", "--out", "card.yaml")

    server = load_profile(tmp_path / "card.yaml").server
    assert server.gpu.memory_bytes == setting("MEMORY_BYTES")
    assert server.gpu.multiprocessors == setting("SMS")
    assert server.gpu.flop_per_s[ElementType.FLOAT32] == pytest.approx(setting("FLOP_PER_S"), rel=0.01)
    # A kernel of 64 MiB lasts 40 us, of which a launch takes 5.
    assert server.gpu.dram_bytes_per_s == pytest.approx(setting("DRAM_BYTES_PER_S"), rel=0.15)
    assert server.link.h2d_bytes_per_s == pytest.approx(setting("H2D_BYTES_PER_S"), rel=0.01)
    assert server.link.d2h_bytes_per_s == pytest.approx(setting("D2H_BYTES_PER_S"), rel=0.01)
    assert server.link.latency_s == pytest.approx(setting("COPY_LATENCY_S"), abs=0.5e-6)
    assert server.host.pin_bytes_per_s == pytest.approx(setting("PIN_BYTES_PER_S"), rel=0.01)
    assert server.host.pin_latency_s == pytest.approx(setting("PIN_LATENCY_S"), rel=0.01, abs=1e-6)


ROOT = Path(__file__).parents[2]


def test_the_context_is_what_the_card_takes_before_any_tensor(device: CudaDevice) -> None:
    """However much is reserved for tensors, in use or in the cache."""
    assert device.context_bytes() == setting("CONTEXT_BYTES")
    held = device.allocate(100 * MIB)
    assert device.context_bytes() == setting("CONTEXT_BYTES")
    device.release(held)
    del held
    assert device.context_bytes() == setting("CONTEXT_BYTES")


def test_the_cache_is_that_of_the_card(device: CudaDevice) -> None:
    assert device.cache_bytes == setting("L2_BYTES")


def test_a_work_of_many_launches_takes_as_long_as_its_kernels_one_after_the_other(device: CudaDevice) -> None:
    """A fill of 1 KiB takes the GPU a few microseconds, and this host more than 20 to launch, which is slow.

    Ten runs of 1000 take it longer than the longest pause, so the GPU would be timed waiting for it. 1000 fills take as
    long as 100 times 10 do, which any pause covers: to 1 %, and the half microsecond to which CUDA's events tell each.
    """
    block = device.allocate(1024)

    def fills(count: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(count):
                time.sleep(20e-6)
                block.zero_()

        return run

    few, many = (time_work(device, device.compute, fills(n), TimeBox(budget_s=0.2)) for n in (10, 1000))
    device.release(block)

    assert (few.remark, many.remark) == ("", "")
    assert many.median == pytest.approx(100 * few.median, rel=0.01, abs=100 * 0.5e-6)


@pytest.mark.parametrize(("level", "logged"), [(None, False), ("WARNING", True)])
def test_failed_allocation_is_logged_only_on_request(level: str | None, logged: bool) -> None:  # noqa: FBT001
    """PyTorch's C++ logs it since 2.14; a command makes a result of it, here by catching it."""
    script = (
        "from vdnnsim.cli.devices import opened\n"
        "with opened('cuda', 0) as device:\n"
        "    from calibration.devices.interface import OutOfDeviceMemory\n"
        "    try: device.allocate(2 * device.memory_bytes)\n"
        "    except OutOfDeviceMemory: print('refused')\n"
    )
    told = {name: text for name, text in os.environ.items() if name != "TORCH_CPP_LOG_LEVEL"}
    environment = told if level is None else {**told, "TORCH_CPP_LOG_LEVEL": level}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "refused\n"
    is_new = tuple(map(int, str(torch.__version__).split(".")[:2])) >= (2, 14)
    assert ("memory allocation failed" in done.stderr) is (logged and is_new)
