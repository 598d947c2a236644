"""The shipped profiles: origins and sources of figures, current GPUs and fits."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from tests.command_line import csv_rows
from tests.machines import shipped_server
from tests.toy import ROOT
from vdnnsim.cost.fit.least_squares import FitRow, fitted_names
from vdnnsim.cost.fit.maxwell import MAXWELL, machine_of, read_fit_rows
from vdnnsim.cost.model import ServerCosts
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.profile import Profile, shipped_profiles
from vdnnsim.hardware.server import Origin
from vdnnsim.policies.registry import known_policies
from vdnnsim.scenario.check import check_file
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.read import read_scenario
from vdnnsim.units import ElementType

PROFILES = ROOT / "hw_profiles"
FASTEST_FIRST = ("h100_sxm", "a100_80gb", "a100_40gb", "rtx_4090", "rtx_3090")
WORKLOADS = (("vgg16", 64), ("resnet50", 64), ("gpt2_small", 4))


@cache
def workload(network: str, batch_size: int, element_type: ElementType) -> Workload:
    return Workload(build_network(network), batch_size, element_type)


@cache
def fastest_s(name: str, network: str, batch_size: int, element_type: ElementType) -> float:
    """Seconds of all kernels of an iteration, one after another, each by its fastest algorithm."""
    table = ServerCosts(shipped_server(name)).table(workload(network, batch_size, element_type))
    return sum(options[0].seconds for options in table.kernels.values())


@pytest.mark.parametrize("profile", shipped_profiles(), ids=lambda profile: profile.server.name)
def test_every_shipped_profile_is_valid_with_sources(profile: Profile) -> None:
    """A source that names a profile (`as of h200`) names a shipped one, and none is unknown."""
    name, figures = profile.server.name, profile.server.figures
    assert check_file(PROFILES / f"{name}.yaml", known_policies()).startswith(f"{PROFILES / name}.yaml: a hardware ")
    assert {"gpu.memory", "gpu.dram_bandwidth", "host.memory", "host.issue"} <= {each.path for each in figures}
    for figure in figures:
        assert isinstance(figure.origin, Origin)
        assert len(figure.source) >= len("as h2d"), figure
        assert "unknown" not in figure.source, figure
        named = re.findall(r"\bas of ([a-z]+[0-9]*_[a-z0-9_]+|h200)\b", figure.source)
        assert all((PROFILES / f"{each}.yaml").is_file() for each in named), figure


@pytest.mark.parametrize(
    "name", [FASTEST_FIRST[0], *(pytest.param(each, marks=pytest.mark.thorough) for each in FASTEST_FIRST[1:])]
)
def test_a_current_gpu_replays_a_scenario(name: str, tmp_path: Path) -> None:
    """VGG-16 at batch 64 takes 4 GiB and more, and fits; under vDNN_all it takes less and longer."""
    path = tmp_path / "today.yaml"
    path.write_text(
        "schema_version: 1\nworkload: {network: vgg16, batch_size: 64, element_type: float32}\n"
        f"hardware: {name}\npolicies: [none, vdnn_all(p)]\n"
    )
    resident, offloading = run_scenario(read_scenario(path)).results
    assert resident.fits
    assert offloading.fits
    assert offloading.metrics.iteration_s > resident.metrics.iteration_s
    assert offloading.metrics.allocated_bytes < resident.metrics.allocated_bytes


@pytest.mark.parametrize("element_type", [ElementType.TF32, ElementType.FLOAT16, ElementType.BFLOAT16])
@pytest.mark.parametrize(("network", "batch_size"), WORKLOADS)
def test_current_gpus_rank_as_their_datasheets(network: str, batch_size: int, element_type: ElementType) -> None:
    """Each has at least as much arithmetic on tensor cores as the next, and more bandwidth."""
    seconds = [fastest_s(name, network, batch_size, element_type) for name in ("h200", *FASTEST_FIRST)]
    assert seconds == sorted(seconds)
    assert len(set(seconds)) == len(seconds)


@pytest.mark.parametrize(
    ("name", "tflop_per_s"),
    [
        *(("rtx_3090", 39.99), ("rtx_4090", 89.46), ("a100_40gb", 156), ("a100_80gb", 156)),
        *(("h100_sxm", 494.7), ("h200", 494.7)),
    ],
)
def test_tf32_is_not_faster_than_tensor_cores(name: str, tflop_per_s: float) -> None:
    """And for VGG-16, most of which is arithmetic, not slower than by 5: maps are turned around for tensor cores."""
    asked = workload("vgg16", 64, ElementType.FLOAT32)
    flop = sum(asked.flop(layer, phase) for layer in asked.graph.layers for phase in asked.phases(layer))
    assert 1 < fastest_s(name, "vgg16", 64, ElementType.FLOAT32) / (flop / (tflop_per_s * 1e12)) < 5


@pytest.mark.parametrize("name", ["h100_x8", "h100_sxm", "gh200", "rtx_4090"])
def test_kernels_of_todays_cards_are_slower_than_their_datasheets(name: str) -> None:
    """conv1_2 of VGG-16 (64) forward in bfloat16: 64 x 224 x 224 x 64 elements of 576 multiply-adds, 236.76 GFLOP.

    X and Y of 411 MB each and 36,928 weights are 822.157 MB, and as much again is turned around for tensor cores, twice
    (read and written): the bytes alone take three times 822 MB at the peak, and the bias is a pass of its own.
    """
    asked = workload("vgg16", 64, ElementType.BFLOAT16)
    (layer,) = [each.index for each in asked.graph.layers if each.name == "conv1_2"]
    machine = shipped_server(name)
    table = ServerCosts(machine).table(asked)

    (only,) = table.options(layer, Phase.FORWARD)
    flop_s = 236.76e9 / machine.gpu.flop_per_s[ElementType.BFLOAT16]
    turned_s = 2 * 822e6 / machine.gpu.dram_bytes_per_s
    assert flop_s + turned_s < only.seconds < 4 * (flop_s + turned_s)
    assert (only.workspace_bytes, only.dram_bytes) == (0, 822_157_440)
    assert table.gap.endswith("the model of efficiencies knows no workspaces, so none count")


@pytest.mark.parametrize("name", [*FASTEST_FIRST, "h200"])
def test_a_kernel_table_beside_efficiencies_keeps_algorithms_of_cudnn(name: str) -> None:
    """Every algorithm of conv1_2 of VGG-16 (64) forward in float32, with its workspace, as its rows have them."""
    rows = [
        row
        for row in csv_rows(PROFILES / f"{name}.kernels.csv")
        if row["inputs"] == "64x224x224" and row["batch_size"] == "64"
    ]
    stated = {
        (row["algorithm"], int(row["workspace_bytes"]))
        for row in rows
        if row["operator"] == "conv 64 3x3 stride 1x1 padding 1x1 bias" and row["phase"] == "forward"
    }
    asked = workload("vgg16", 64, ElementType.FLOAT32)
    (layer,) = [each.index for each in asked.graph.layers if each.name == "conv1_2"]
    table = ServerCosts(shipped_server(name)).table(asked)

    assert {(each.algorithm, each.workspace_bytes) for each in table.options(layer, Phase.FORWARD)} == stated
    assert max(workspace_bytes for _, workspace_bytes in stated) > 100e6
    assert table.gap == ""


def test_carried_over_figures_equal_those_of_the_sister_card() -> None:
    """A fit that is made again moves its sisters as well; what is scaled by what products reach is another number."""
    servers = {each.server.name: each.server for each in shipped_profiles()}
    carried = 0
    for server in servers.values():
        for figure in server.figures:
            sister = re.fullmatch(r"carried over from (\w+), fitted there", figure.source)
            if sister is not None:
                name = figure.path.removeprefix("cost_model.")
                assert server.cost_model[name] == servers[sister[1]].cost_model[name], (server.name, name)
                carried += 1
    assert carried > 0


def test_sister_cards_differ_in_memory_or_number_alone() -> None:
    """An A100 of 40 and of 80 GB; one H100 and eight; one H200 and eight."""
    small, large = shipped_server("a100_40gb"), shipped_server("a100_80gb")
    assert small.gpu.flop_per_s == large.gpu.flop_per_s
    assert (small.gpu.multiprocessors, small.link) == (large.gpu.multiprocessors, large.link)
    assert small.gpu.dram_bytes_per_s < large.gpu.dram_bytes_per_s
    assert small.gpu.memory_bytes < large.gpu.memory_bytes
    names = ("h100_sxm", "h100_x8"), ("h200", "h200_x8"), ("a100_80gb", "a100_80gb_x8"), ("rtx_4090", "rtx_4090_x8")
    for one, eight in ((shipped_server(card), shipped_server(several)) for card, several in names):
        assert (one.gpu, one.kernels, one.cost_model) == (eight.gpu, eight.kernels, eight.cost_model)
        assert one.link.h2d_bytes_per_s == eight.link.h2d_bytes_per_s
        assert one.link.d2h_bytes_per_s == eight.link.d2h_bytes_per_s
        assert 8 * one.host.memory_bytes == eight.host.memory_bytes


@pytest.mark.parametrize(
    ("name", "fitted"),
    [("p100_x4", "p100_x2"), ("dgx1_p100", "p100_x2"), ("k40m", "titan_black"), ("titan_z", "titan_black")],
)
def test_cards_of_one_chip_share_their_cost_model(name: str, fitted: str) -> None:
    assert shipped_server(name).cost_model == shipped_server(fitted).cost_model


@pytest.mark.parametrize("name", ["l40s_x8", "gh200", "k40m", "titan_z"])
def test_unmeasured_kernels_are_marked_as_assumed(name: str) -> None:
    """But for lanes, which the datasheet of the chip counts."""
    origins = {figure.path: figure.origin for figure in shipped_server(name).figures}
    lanes = origins.pop("cost_model.cuda_cores_per_lane", Origin.ASSUMED)
    assert lanes in {Origin.ASSUMED, Origin.DATASHEET}
    assert {origin for path, origin in origins.items() if path.startswith("cost_model.")} == {Origin.ASSUMED}


@cache
def fit_rows(name: str) -> tuple[FitRow, ...]:
    return read_fit_rows(PROFILES / f"{name}.fit.csv")


def mean_error(name: str, rows: Iterable[FitRow]) -> float:
    machine = machine_of(shipped_server(name), {})
    return fmean(abs(row.relative_error(machine)) for row in rows)


@pytest.mark.parametrize(
    ("name", "held"),
    [
        pytest.param("titan_black", 7, marks=pytest.mark.slow),
        *(pytest.param(name, 4, marks=pytest.mark.thorough) for name in ("titan_xp", "p100_x2")),
    ],
)
def test_a_refit_gives_the_parameters_of_the_profile(name: str, held: int) -> None:
    pytest.importorskip("scipy")
    machine = shipped_server(name)
    refitted = MAXWELL.fit(machine, fit_rows(name))
    assert refitted == pytest.approx({name: machine.cost_model[name] for name in fitted_names(machine)}, rel=0.01)
    assert len(machine.cost_model) - len(refitted) == held


@pytest.mark.parametrize("name", ["titan_xp", "p100_x2"])
def test_fits_on_pascal_are_of_public_convolutions(name: str) -> None:
    """94 convolutions of DeepBench; the mean absolute error of 3 x 3 filters is 14 % on the Titan Xp, 13 % on the P100.

    Some are one shape measured twice or have no data gradient.
    """
    rows = fit_rows(name)
    assert all(row.origin.startswith("baidu-research/DeepBench da81ba78 results/train/") for row in rows)
    assert all(row.subject.startswith("conv ") for row in rows)
    assert {row.role for row in rows} == {"fit", "held_out"}
    assert {row.group for row in rows if row.role == "held_out"} == {"DeepBench first layer data"}
    assert mean_error(name, (row for row in rows if row.group.startswith("DeepBench 3x3"))) < 0.145


def test_the_fit_on_kepler_is_of_public_networks_and_layers() -> None:
    """Mean absolute errors: networks in the fit 7.4 %, single layers 8.8 %, the network held out 15.3 %."""
    rows = fit_rows("titan_black")
    commits = ("soumith/convnet-benchmarks bb3628cf", "soumith/convnet-benchmarks 3329f920")
    assert len(rows) == 29
    assert all(row.origin.startswith(commits) for row in rows)
    assert {row.subject for row in rows if row.role == "held_out"} == {"overfeat"}
    for group, role, error in (("network", "fit", 0.074), ("layer", "fit", 0.088), ("network", "held_out", 0.153)):
        alike = [row for row in rows if (row.group, row.role) == (f"{group} R2", role)]
        assert mean_error("titan_black", alike) == pytest.approx(error, abs=0.001)
