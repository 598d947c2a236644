"""The rows that cost models are fitted to: the Titan X's as `maxwell` reads them, made ones as `efficiency` does."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.toy import ROOT
from vdnnsim.cost.fit.efficiency import EfficiencyKernel, gpu_of, read_efficiency_rows
from vdnnsim.cost.fit.least_squares import START, FitRow, fitted_names
from vdnnsim.cost.fit.maxwell import MAXWELL, ConvolutionKernel, machine_of, read_fit_rows
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType

TITAN_X = ROOT / "hw_profiles" / "titan_x_maxwell.yaml"
HEAD = "role,group,network,calls,kernel,phase,element_type,layout,time_us,origin\n"


@pytest.fixture(scope="module")
def titan_x() -> Server:
    return read_profile(TITAN_X)


@pytest.fixture(scope="module")
def rows() -> tuple[FitRow, ...]:
    return read_fit_rows(TITAN_X.with_suffix(".fit.csv"))


@pytest.mark.slow
def test_a_refit_gives_the_parameters_of_the_profile(titan_x: Server, rows: tuple[FitRow, ...]) -> None:
    pytest.importorskip("scipy")
    names = fitted_names(titan_x)
    assert titan_x.cost_model.keys() - names == {"kernel_overhead_s", "stream_dram_fraction", "idle_tail_waves"}
    assert MAXWELL.fit(titan_x, rows) == pytest.approx({name: titan_x.cost_model[name] for name in names}, rel=0.01)
    assert set(names) <= START.maxwell.keys()


def test_every_row_has_a_public_origin_and_networks_are_held_out(rows: tuple[FitRow, ...]) -> None:
    assert all(row.origin.startswith(("soumith/convnet-benchmarks ", "baidu-research/DeepBench ")) for row in rows)
    assert {row.subject for row in rows if row.role == "held_out"} == {"overfeat", "googlenet"}
    assert not {row.subject for row in rows if row.role == "fit"} & {"overfeat", "googlenet"}
    others = [row for row in rows if row.role == "other_version"]
    assert {(row.group, row.algorithms) for row in others} == {("layer R3", "fastest_without_tiling")}


def test_folds_hold_a_subject_or_a_fifth_of_the_shapes_of_deepbench(rows: tuple[FitRow, ...]) -> None:
    """Whatever the batch size, phase or library version."""
    folds: dict[object, set[object]] = {}
    for row in (each for each in rows if each.role == "fit"):
        measured: object = row.subject
        if row.group.startswith("DeepBench"):
            kernel = row.kernels[0][0]
            assert isinstance(kernel, ConvolutionKernel)
            measured = replace(kernel.shape, n=1)
        folds.setdefault(measured, set()).add(row.fold)
    assert all(len(each) == 1 for each in folds.values())
    assert set.union(*folds.values()) >= {0, 1, 2, 3, 4, "alexnet", "L1"}


@pytest.mark.parametrize(
    ("role", "group", "bound"),
    [
        ("fit", "network R4", 0.06),
        ("fit", "network R4 float16", 0.05),
        ("fit", "network R2", 0.07),
        ("held_out", "network R4", 0.16),
        ("held_out", "network R2", 0.13),
    ],
)
def test_whole_networks_are_predicted_as_well_as_stated(
    role: str, group: str, bound: float, titan_x: Server, rows: tuple[FitRow, ...]
) -> None:
    machine = machine_of(titan_x, {})
    errors = [abs(row.relative_error(machine)) for row in rows if (row.role, row.group) == (role, group)]
    assert sum(errors) / len(errors) < bound


def test_rows_are_read_kernel_by_kernel_and_step_by_step(tmp_path: Path) -> None:
    """A step is the sum of its kernels, each as often as it ran; both gradients of a convolution add up."""
    path = tmp_path / "toy.fit.csv"
    path.write_text(
        HEAD
        + "fit,alone conv,,1,conv 2x8x8x8 8x8x3x3 1 1 1,backward,float16,nchw,10,here\n"
        + "held_out,step,net 2,3,add 1000 0,forward,float16,nhwc,20,there\n"
        + "held_out,step,net 2,1,product 1x8x8x8,forward,float16,nhwc,,\n"
        + "held_out,step,net 2,1,attention 1000 1000 1x2x16x8,forward,float16,nhwc,,\n"
        + "held_out,step,net 4,1,conv 2x8x8x8 8x1x3x3 1 1 8 bias,forward,float16,nhwc,30,there\n"
    )
    alone, two, four = read_efficiency_rows(path)
    gpu = gpu_of(read_profile(TITAN_X.with_stem("a40")), {})
    gradients = [
        EfficiencyKernel(alone.subject, phase, ElementType.FLOAT16, channels_last=False).seconds(gpu)
        for phase in (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS)
    ]
    assert alone.predicted_s(gpu) == sum(gradients)
    assert [count for _, count in two.kernels] == [3, 1, 1]
    assert two.predicted_s(gpu) == sum(count * kernel.seconds(gpu) for kernel, count in two.kernels)
    assert (two.subject, two.source, two.observed_s, len(four.kernels)) == ("net 2", "step", 20e-6, 1)
    assert (two.fold, four.fold) == ("net", "net")
    assert four.relative_error(gpu) == four.predicted_s(gpu) / 30e-6 - 1
