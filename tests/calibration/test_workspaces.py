import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibration.kernels.cudnn_plans import DOWN_CONVERT_NOTE, NONDETERMINISTIC_NOTE, TENSOR_CORE_NOTE, ConvolutionPlan
from calibration.kernels.described_gpus import GPUS, H200
from calibration.measure.kernel_cases import KernelCase, distinct_cases
from calibration.workspaces import PAPER_AND_RESNET, KernelSettings, asked_workloads, convolution_rows, main, other_row
from tests.calibration.kernels.frontend_double import Engine, Frontend
from vdnnsim.cost.kernel_table import KernelRow, read_kernel_table
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import InputError
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Origin
from vdnnsim.units import ElementType

PROFILES = Path(__file__).parents[2] / "hw_profiles"
SEVERAL = ("alexnet:128", "vgg16:64", "resnet50:64", "gpt2_small:4")
"""In the tables of all profiles of GPUs but the H200."""
TF32 = KernelSettings(tf32=True, channels_last=False)
FLOAT32 = KernelSettings(tf32=False, channels_last=False)


def case(network: str, layer: str, phase: Phase) -> KernelCase:
    workloads = asked_workloads([network], ElementType.FLOAT32)
    return next(each for each in distinct_cases(workloads) if each.layer.name == layer and each.phase is phase)


def plan(name: str, workspace_bytes: int, *notes: str) -> ConvolutionPlan:
    return ConvolutionPlan(name, workspace_bytes, frozenset(notes))


def committed_rows(profile: str) -> tuple[KernelRow, ...]:
    kernels = read_profile(PROFILES / f"{profile}.yaml").kernels
    assert kernels is not None
    return read_kernel_table(kernels.table)


def test_a_row_stands_for_all_plans_of_a_family_that_take_the_same_allocations() -> None:
    """Both larger plans take 401,985 allocations of 512 B: 205,815,824 / 512 = 401,984.03."""
    asked = case("vgg16:64", "conv2_1", Phase.FORWARD)
    plans = [
        plan("eng38", 205_815_824, TENSOR_CORE_NOTE),
        plan("eng41", 205_815_955, TENSOR_CORE_NOTE),
        plan("eng70", 0),
    ]

    rows = convolution_rows(H200, asked, TF32.problem(asked), plans, "cuDNN 9.19.1")

    assert [(row.algorithm, row.workspace_bytes) for row in rows] == [("eng38", 205_815_824), ("eng70", 0)]
    assert rows[0].note == "TENSOR_CORE; untimed; cuDNN 9.19.1, as 1 more"
    assert rows[1].note == "untimed; cuDNN 9.19.1"


def test_seconds_are_the_least_that_the_peaks_allow() -> None:
    """conv2_1 of VGG-16 at batch 64: X 205,520,896 B, Y 411,041,792 B, W and bias 295,424 B.

    2 x 64 x 128 x 12,544 x 576 = 118,380,036,096 FLOPs take 239.3 us at 494.7 TFLOP/s and 1,766.9 us at 67. The
    workspace is written and read: (616,858,112 + 2 x 205,815,824) B / 4.8 TB/s = 214.3 us. The bias reads and writes
    Y: 171.3 us. So 239.3 + 171.3 = 410.6 us with tensor cores, and 1,766.9 + 171.3 = 1,938.1 us without. With
    1,849,688,064 B of columns (616,858,112 + 3,699,376,128) B / 4.8 TB/s = 899.2 us, + 171.3 us.
    """
    asked = case("vgg16:64", "conv2_1", Phase.FORWARD)
    plans = [
        *(plan("eng38", 205_815_824, TENSOR_CORE_NOTE), plan("eng70", 0)),
        plan("eng2", 1_849_688_064, TENSOR_CORE_NOTE),
    ]
    on_tensor_cores, without, large = convolution_rows(H200, asked, TF32.problem(asked), plans, "cuDNN")
    assert on_tensor_cores.seconds == pytest.approx(410.6e-6, rel=1e-3)
    assert without.seconds == pytest.approx(1938.1e-6, rel=1e-3)
    assert large.seconds == pytest.approx(1070.5e-6, rel=1e-3)
    assert on_tensor_cores.flop == 118_380_036_096
    assert (without.origin, without.count, without.spread) == (Origin.DATASHEET, 0, 0.0)


def test_a_gradient_that_is_added_to_another_lies_in_the_workspace_first() -> None:
    """Backward of inception_3a runs its branches from the last to the first, so all but the last add to dX.

    Of 128 images of 192 x 28 x 28 dX takes 77,070,336 B, behind 1,000 B of the plan's own, which end at 1,024.
    """
    workloads = asked_workloads(["googlenet:128"], ElementType.FLOAT32)
    added = [
        each
        for each in distinct_cases(workloads)
        if each.shape.gradients == "a" and each.layer.in_shapes[0].elements == 192 * 28 * 28 and each.layer.parameters
    ]

    rows = [convolution_rows(H200, each, FLOAT32.problem(each), [plan("eng1", 1_000)], "cuDNN")[0] for each in added]

    assert rows
    assert {row.workspace_bytes for row in rows} == {1_024 + 77_070_336}


@pytest.mark.parametrize(
    ("network", "layer", "settings", "seconds"),
    [
        # 2 x 64 x 25,088 x 4,096 FLOPs take 26.6 us in TF32, 196.3 us in float32; their memory
        # 4 B x (64 x 25,088 + 25,088 x 4,096 + 4,096 + 64 x 4,096) / 4.8 TB/s = 87.2 us.
        ("vgg16:64", "fc6", TF32, 87.2e-6),
        ("vgg16:64", "fc6", FLOAT32, 196.3e-6),
        # 4 x 1,024 tokens: 2 x 4,096 x 768 x 3,072 FLOPs.
        ("gpt2_small:4", "h0.mlp.fc", TF32, 39.07e-6),
        ("gpt2_small:4", "h0.mlp.fc", FLOAT32, 288.5e-6),
        # Two products of 4 x 1,024 tokens with the 512 before them, in the mean, 768 wide, and a softmax: 6.45 GFLOP.
        ("gpt2_small:4", "h0.attn", TF32, 13.03e-6),
        ("gpt2_small:4", "h0.attn", FLOAT32, 96.2e-6),
    ],
)
def test_tf32_is_for_all_products(network: str, layer: str, settings: KernelSettings, seconds: float) -> None:
    asked = case(network, layer, Phase.FORWARD)
    assert other_row(H200, asked, settings).seconds == pytest.approx(seconds, rel=1e-3)


def test_workloads_are_written_as_network_and_batch_size() -> None:
    (workload,) = asked_workloads(["alexnet:128"], ElementType.FLOAT16)
    assert (workload.graph.name, workload.batch_size, workload.element_type) == ("alexnet", 128, ElementType.FLOAT16)


@pytest.mark.parametrize("text", ["alexnet", "alexnet:", "alexnet:0", "alexnet:-1", "alexnet:x", "alexnett:1"])
def test_malformed_workload_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        asked_workloads([text], ElementType.FLOAT32)


def test_missing_cudnn_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    done = CliRunner().invoke(main, [str(tmp_path / "table.csv"), "--network", "alexnet:1"])
    assert done.exit_code == 1
    assert "pip install nvidia-cudnn-frontend" in done.output
    assert done.output.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_command_writes_a_row_for_each_plan_and_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines 0 and 1 can be built, so each phase of each distinct convolution has two rows, any other kernel one."""
    engines = {0: Engine(), 1: Engine(workspace_bytes=9), 2: Engine(works=False)}
    monkeypatch.setitem(sys.modules, "cudnn", Frontend(engines, ["eng2"]))
    path = tmp_path / "table.csv"

    done = CliRunner().invoke(main, [str(path), "--network", "tiny_linear:8", "--channels-last"])

    assert done.exit_code == 0, done.output
    rows = read_kernel_table(path)
    asked = distinct_cases(asked_workloads(["tiny_linear:8"], ElementType.FLOAT32))
    convolutions = [each for each in asked if each.shape.kind == "conv"]
    assert len(rows) == 2 * len(convolutions) + len(asked) - len(convolutions)
    assert "backward data: eng2, backward weights: eng2, forward: eng2" in done.output


@pytest.mark.parametrize("profile", ["h200", "h200_without_tf32"])
def test_the_committed_tables_hold_every_kernel_of_the_default_networks_untimed(profile: str) -> None:
    rows = committed_rows(profile)
    asked = distinct_cases(asked_workloads(PAPER_AND_RESNET, ElementType.FLOAT32))
    assert {row.shape: (row.flop, row.nbytes) for row in rows} == {
        each.shape: (each.workload.flop(each.layer, each.phase), each.workload.bytes_moved(each.layer, each.phase))
        for each in asked
    }
    assert {(row.origin, row.count) for row in rows} == {(Origin.DATASHEET, 0)}
    assert not any(NONDETERMINISTIC_NOTE in row.note or DOWN_CONVERT_NOTE in row.note for row in rows)


@pytest.mark.parametrize("name", sorted(GPUS.keys() - {"h200"}))
def test_a_profile_states_the_rates_that_its_table_was_made_with(name: str) -> None:
    """Float32 without tensor cores; what has fewer bits, with them. The table knows the networks of its provenance.

    Tables of an RTX 3090 and 4090 were made at the stated 1,695 and 2,520 MHz, their profiles have peaks at 1,905 and
    2,730.
    """
    server = read_profile(PROFILES / f"{name}.yaml")
    described = GPUS[name]
    float32, float16, bfloat16 = ElementType.FLOAT32, ElementType.FLOAT16, ElementType.BFLOAT16
    on_tensor_cores = described.tensor_flop_per_s

    assert server.gpu.dram_bytes_per_s == described.dram_bytes_per_s
    assert server.gpu.multiprocessors == described.properties["multiProcessorCount"]
    assert server.gpu.memory_bytes == described.properties["totalGlobalMem"]
    faster = {"rtx_3090": 1905 / 1695, "rtx_4090": 2730 / 2520}.get(name, 1)
    stated = {
        float32: described.flop_per_s[float32],
        ElementType.TF32: on_tensor_cores[float32],
        float16: on_tensor_cores[float16],
        bfloat16: on_tensor_cores[bfloat16],
    }
    # Peaks have four digits.
    assert server.gpu.flop_per_s == pytest.approx({each: faster * rate for each, rate in stated.items()}, rel=2e-4)
    asked = distinct_cases(asked_workloads(SEVERAL, float32))
    assert {row.shape for row in committed_rows(name)} == {each.shape for each in asked}
    assert {(row.origin, row.count) for row in committed_rows(name)} == {(Origin.DATASHEET, 0)}
    made_by = dict(server.provenance)["made_by"]
    assert made_by.endswith(f"--gpu {name} --tf32 with --network {', '.join(SEVERAL)}")


def test_tf32_buys_speed_with_copies_of_the_operands_in_another_layout() -> None:
    """At batch 64 X and Y of conv1_2 of VGG-16 take 822,083,584 B each, W 147,456 B; conv2_1 as above.

    A plan of conv1_2 copies X, Y and W, 1,644,314,624 B, and takes 147 B to align them; one of conv2_1 copies X and W,
    205,815,808 B, and takes 16. Without TF32 no plan is on tensor cores and one does with nothing.
    """
    for layer, copies_bytes in (("conv1_2", 1_644_314_624 + 147), ("conv2_1", 205_815_808 + 16)):
        shape = case("vgg16:64", layer, Phase.FORWARD).shape
        with_tf32 = [row for row in committed_rows("h200") if row.shape == shape]
        without = [row for row in committed_rows("h200_without_tf32") if row.shape == shape]
        assert copies_bytes in {row.workspace_bytes for row in with_tf32 if TENSOR_CORE_NOTE in row.note}
        assert not any(TENSOR_CORE_NOTE in row.note for row in without)
        assert min(row.workspace_bytes for row in without) == 0
