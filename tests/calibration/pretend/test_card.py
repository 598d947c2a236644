import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from calibration.pretend.build import Runtime, TorchBuild
from calibration.pretend.card import (
    ASSUMED_CONTEXT_BYTES,
    capability_figure,
    card_of,
    compute_capability,
    operator_rates,
)
from calibration.pretend.environment import Clock, Copies, environment
from tests.machines import shipped_server
from tests.toy import server_with
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.profile import read_profile, shipped_profiles
from vdnnsim.hardware.server import Figure, Origin, Server
from vdnnsim.units import KIB, MIB, ElementType

# Tables of compute capabilities in the CUDA C++ programming guide, appendix "compute capabilities".
CAPABILITIES = {
    "k40m": "3.5", "k40m_x2_ethernet": "3.5", "titan_z": "3.5", "titan_black": "3.5", "titan_x_maxwell": "5.2",
    "p100_x2": "6.0", "p100_x4": "6.0", "dgx1_p100": "6.0", "titan_xp": "6.1", "a100_40gb": "8.0", "a100_80gb": "8.0",
    "rtx_3090": "8.6", "rtx_4090": "8.9", "gh200": "9.0", "h100_sxm": "9.0", "h100_x8": "9.0", "h200": "9.0",
    "h100_80gb_hbm3": "9.0", "nvidia_h200": "9.0",
    "h200_without_tf32": "9.0", "h200_x8": "9.0", "p100": "6.0", "gtx_1080ti": "6.1", "v100": "7.0", "titan_v": "7.0",
    "titan_rtx": "7.5", "rtx_2080ti": "7.5", "t4": "7.5", "a40": "8.6", "l4": "8.9", "b200": "10.0",
    "a10": "8.6", "rtx_a6000": "8.6", "rtx_a4000": "8.6", "rtx_3060": "8.6", "l40s": "8.9", "rtx_6000_ada": "8.9",
    "a100_80gb_x8": "8.0", "rtx_3090_x2_nvlink": "8.6", "rtx_3090_x4": "8.6", "rtx_3090_x8": "8.6",
    "rtx_4090_x4": "8.9", "rtx_4090_x8": "8.9", "l40s_x4": "8.9", "l40s_x8": "8.9", "h100_x8_96gb": "9.0",
    "h100_pcie": "9.0", "h100_nvl": "9.0", "rtx_5090": "12.0", "rtx_pro_6000": "12.0",
}  # fmt: skip
RUNTIME = Runtime(
    TorchBuild("2.14.1", "13.0", Path("/real"), ()), (Path("/built/libcudart.so.13"), Path("/built/libcuda.so.1"))
)


def server(name: str) -> Server:
    return shipped_server(name)


def variables_of(name: str, **variables: str) -> Mapping[str, str]:
    return environment(card_of(server(name)), RUNTIME, inherited=variables)


@pytest.mark.parametrize("machine", [each.server for each in shipped_profiles()], ids=lambda each: each.name)
def test_every_profile_is_a_card(machine: Server) -> None:
    card = card_of(machine)
    assert card.compute_capability == CAPABILITIES[machine.name]
    assert card.memory_bytes == machine.gpu.memory_bytes == card.integer("totalGlobalMem")
    assert card.integer("multiProcessorCount") == machine.gpu.multiprocessors
    assert card.integer("maxSharedMemoryPerBlockOptin") <= card.shared_memory_bytes


def test_a_card_has_the_rates_of_its_profile_and_the_properties_of_its_chip() -> None:
    """RTX 4090: 128 multiprocessors of 1,536 threads, 100 KiB of shared memory, 72 MiB of cache, 2,520 MHz."""
    variables = variables_of("rtx_4090")
    expected = {
        "NAME": "NVIDIA GeForce RTX 4090", "GPUS": "1", "COMPUTE_CAPABILITY": "8.9", "SMS": "128",
        "THREADS_PER_SM": "1536", "BLOCKS_PER_SM": "24", "REGISTERS_PER_SM": "65536",
        "SHARED_MEMORY_PER_SM_BYTES": str(100 * KIB), "SHARED_MEMORY_PER_BLOCK_BYTES": str(99 * KIB),
        "L2_BYTES": str(72 * MIB), "CLOCK_HZ": "2520000000", "H2D_BYTES_PER_S": "25100000000",
        "COPY_LATENCY_S": "1e-05", "DRAM_BYTES_PER_S": "1008000000000", "FLOP_PER_S": "89460000000000",
        "LAUNCH_S": "3.837e-06", "ISSUE_S": "5e-06", "PIN_BYTES_PER_S": "9100000000", "PIN_LATENCY_S": "0.0023",
        "CLOCK": "virtual", "COPIES": "now",
    }  # fmt: skip
    assert {name: variables[f"VDNNSIM_PRETEND_{name}"] for name in expected} == expected
    assert json.loads(variables["VDNNSIM_PRETEND_CUDNN"])["deviceVer"] == 890
    assert "VDNNSIM_PRETEND_LOG" not in variables


def test_contexts_and_cards_that_are_refused() -> None:
    stated, assumed = card_of(server("k40m")), card_of(server("titan_x_maxwell"))
    assert (stated.context_bytes, stated.context_assumed) == (100 * MIB, False)
    assert (assumed.context_bytes, assumed.context_assumed) == (ASSUMED_CONTEXT_BYTES, True)
    # A chip of which nothing is known is refused by name.
    h100 = server("h100_sxm")
    with pytest.raises(ProfileError, match=r"h100_sxm: .*Voodoo 2"):
        card_of(replace(h100, gpu=replace(h100.gpu, name="3dfx Voodoo 2")))
    # A card without a peak of float32 is refused.
    h100 = server("h100_sxm")
    narrow = dict(h100.gpu.flop_per_s)
    del narrow[ElementType.FLOAT32]
    with pytest.raises(ProfileError, match=r"h100_sxm: .*peak of float32"):
        card_of(replace(h100, gpu=replace(h100.gpu, flop_per_s=narrow)))


def test_the_compute_capability_is_stated_measured_of_the_name_or_of_what_is_extended(tmp_path: Path) -> None:
    """A future card that extends an H200 is of 9.0, whatever its name, and so is one that extends that one.

    An RTX 5090 is of 12.0 though its profile extends that of an RTX 4090, of 8.9.
    """

    def figure(gpu: str, above: str = "h200", name: str = "mine") -> Figure:
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"schema_version: 1\nextends: {above}\nname: {name}\ndescription: x\ngpu: {gpu}\n", "utf-8")
        found = capability_figure(server := read_profile(path))
        assert compute_capability(server) == tuple(map(int, found.text.split(".")))
        return found

    inherited = figure("{name: Future 300}")
    assert (inherited.text, inherited.origin, inherited.source) == (
        "9.0",
        Origin.ASSUMED,
        "as h200, which mine extends",
    )
    assert figure("{name: Future 400}", "mine", "next").text == "9.0"
    stated = "{name: Future 300, compute_capability: {value: 10.3, origin: datasheet, source: CUDA's guide}}"
    assert figure(stated).source == "CUDA's guide"
    assert compute_capability(server("rtx_5090")) == (12, 0)
    odd = replace(server("h200"), gpu=replace(server("h200").gpu, name="Odd card"))
    assert (compute_capability(odd), capability_figure(odd).text) == (None, "unknown")
    measured = capability_figure(replace(odd, provenance=(("compute_capability", "7.5"),)))
    assert (measured.text, measured.origin) == ("7.5", Origin.MEASURED)


def test_inherited_preloads_and_paths_come_last(tmp_path: Path) -> None:
    variables = variables_of("h100_sxm", LD_PRELOAD="libjemalloc.so.2", PYTHONPATH="/mine")
    assert variables["LD_PRELOAD"] == "/built/libcudart.so.13:/built/libcuda.so.1:libjemalloc.so.2"
    startup, _, mine = variables["PYTHONPATH"].partition(":")
    assert (Path(startup) / "sitecustomize.py").is_file()
    assert mine == "/mine"
    assert variables_of("h100_sxm")["LD_PRELOAD"] == "/built/libcudart.so.13:/built/libcuda.so.1"
    # Clock copies log and number are variables.
    variables = environment(
        card_of(server("h100_sxm")),
        RUNTIME,
        inherited={},
        gpus=3,
        clock=Clock.REAL,
        copies=Copies.DELAYED,
        log=tmp_path / "log",
    )
    chosen = {name: variables[f"VDNNSIM_PRETEND_{name}"] for name in ("GPUS", "CLOCK", "COPIES", "LOG")}
    assert chosen == {"GPUS": "3", "CLOCK": "real", "COPIES": "delayed", "LOG": str(tmp_path / "log")}


def test_fractions_of_a_roofline_cut_the_peaks() -> None:
    """Half of 50 and 100 FLOP/s for products, a quarter for convolutions, 0.8 of 320 B/s; TF32 runs as float32."""
    parameters = {"launch_overhead_s": 3e-6, "flop_fraction": 0.5, "conv_flop_fraction": 0.25, "dram_fraction": 0.8}
    rates = operator_rates(server_with(parameters))
    assert rates.product_flop_per_s == {"float32": 25, "bfloat16": 50, "tf32": 25}
    assert rates.convolution_flop_per_s == {"float32": 12.5, "bfloat16": 25, "tf32": 12.5}
    assert (rates.dram_bytes_per_s, rates.kernel_overhead_s) == (256, 3e-6)
    assert rates.origin is Origin.ASSUMED
    # H100 SXM: 67 TFLOP/s in float32 and 494.7 in TF32, less what each unit was found to reach.
    machine = server("h100_sxm")
    rates, fitted = operator_rates(machine), machine.cost_model
    assert rates.product_flop_per_s["float32"] == 67e12 * fitted["cuda_flop_fraction"]
    assert rates.product_flop_per_s["tf32"] == 494.7e12 * fitted["tensor_flop_fraction"]
    assert rates.convolution_flop_per_s["tf32"] == 494.7e12 * fitted["tensor_forward_flop_fraction"]
    assert rates.dram_bytes_per_s == 3.35e12 * fitted["pointwise_dram_fraction"]
    assert rates.origin is Origin.FITTED
