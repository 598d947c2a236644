from pathlib import Path

from calibration.pretend.card import operator_rates
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.server import Origin, Server

ROOFLINE = """
schema_version: 1
name: card
description: a card for tests
gpu:
  name: NVIDIA H100
  memory: {value: 8 GiB, origin: assumed, source: test}
  dram_bandwidth: {value: 100 GB/s, origin: assumed, source: test}
  multiprocessors: {value: 10, origin: assumed, source: test}
  granule: {value: 512 B, origin: assumed, source: test}
  peak:
    float32: {value: 10 TFLOP/s, origin: assumed, source: test}
    float16: {value: 40 TFLOP/s, origin: assumed, source: test}
link:
  name: PCIe
  h2d: {value: 10 GB/s, origin: assumed, source: test}
  d2h: {value: 10 GB/s, origin: assumed, source: test}
  latency: {value: 10 us, origin: assumed, source: test}
host:
  memory: {value: 8 GiB, origin: assumed, source: test}
  issue: {value: 5 us, origin: assumed, source: test}
  pin_latency: {value: 1 ms, origin: assumed, source: test}
  pin_bandwidth: {value: 9 GB/s, origin: assumed, source: test}
cost_model:
  kind: roofline
  launch_overhead_s: {value: 3e-06, origin: assumed, source: test}
  flop_fraction: {value: 0.5, origin: assumed, source: test}
  conv_flop_fraction: {value: 0.25, origin: assumed, source: test}
  dram_fraction: {value: 0.8, origin: assumed, source: test}
"""


def shipped(name: str) -> Server:
    return read_profile(find_profile(name, Path()))


def test_fractions_of_a_roofline_cut_the_peaks(tmp_path: Path) -> None:
    """Half of 10 and 40 TFLOP/s for products, a quarter for convolutions, 0.8 of 100 GB/s; TF32 runs as float32."""
    (tmp_path / "card.yaml").write_text(ROOFLINE)
    rates = operator_rates(read_profile(tmp_path / "card.yaml"))
    assert rates.product_flop_per_s == {"float32": 5e12, "float16": 20e12, "tf32": 5e12}
    assert rates.convolution_flop_per_s == {"float32": 2.5e12, "float16": 10e12, "tf32": 2.5e12}
    assert (rates.dram_bytes_per_s, rates.kernel_overhead_s) == (80e9, 3e-6)
    assert rates.origin is Origin.ASSUMED


def test_efficiencies_cut_the_peaks_of_cuda_and_tensor_cores() -> None:
    """H100 SXM: 67 TFLOP/s in float32 and 494.7 in TF32, less what each unit was found to reach."""
    server = shipped("h100_sxm")
    rates, parameters = operator_rates(server), server.cost_model
    assert rates.product_flop_per_s["float32"] == 67e12 * parameters["cuda_flop_fraction"]
    assert rates.product_flop_per_s["tf32"] == 494.7e12 * parameters["tensor_flop_fraction"]
    assert rates.convolution_flop_per_s["tf32"] == 494.7e12 * parameters["tensor_forward_flop_fraction"]
    assert rates.dram_bytes_per_s == 3.35e12 * parameters["pointwise_dram_fraction"]
    assert rates.origin is Origin.FITTED


def test_fitted_parameters_make_fitted_rates() -> None:
    """Titan X: 6.6 TFLOP/s or so, less what its fit says that products and streams sustain."""
    server = shipped("titan_x_maxwell")
    rates = operator_rates(server)
    parameters, (peak,) = server.cost_model, set(server.gpu.flop_per_s.values())
    assert rates.product_flop_per_s["float32"] == peak * parameters["product_flop_fraction"]
    assert rates.convolution_flop_per_s["tf32"] == peak * parameters["implicit_forward_flop_fraction"]
    assert rates.dram_bytes_per_s == server.gpu.dram_bytes_per_s * parameters["stream_dram_fraction"]
    assert rates.origin is Origin.FITTED
