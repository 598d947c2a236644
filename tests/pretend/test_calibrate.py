"""`vdnnsim calibrate --gpu 0` on a pretended GPU finds the rates that were set."""

from dataclasses import replace
from pathlib import Path

import pytest

from calibration.measure.timing import TimeBox
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
