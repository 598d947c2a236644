import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.toy import ROOT
from vdnnsim.cost.efficiency import efficient_gpu
from vdnnsim.cost.efficiency_fit import efficiency_report, fit_efficiencies, fitted_names, left_out_report
from vdnnsim.cost.efficiency_rows import EfficiencyRow, FitKernel, read_efficiency_rows
from vdnnsim.cost.fit import main
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Figure, Origin, Server
from vdnnsim.units import ElementType

PROFILES = ROOT / "hw_profiles"
A40 = PROFILES / "a40.yaml"
FITTED = [path for path in sorted(PROFILES.glob("*.yaml")) if "kind: efficiency" in path.read_text("utf-8")]
HEAD = "role,group,network,calls,kernel,phase,element_type,layout,time_us,origin\n"


def one(text: str, phase: Phase = Phase.FORWARD, calls: int = 1) -> FitKernel:
    return FitKernel(text, phase, ElementType.FLOAT16, channels_last=False, calls=calls)


def server() -> Server:
    """An A40 of which two parameters are to be fitted."""
    figures = tuple(
        Figure(f"cost_model.{name}", "1", Origin.FITTED, "test")
        for name in ("pointwise_dram_fraction", "copy_dram_fraction")
    )
    return replace(read_profile(A40), figures=figures)


def rows_of(machine: Server, factor: float) -> list[EfficiencyRow]:
    """Additions and casts of 100 and 200 MB, as long as the profile says times a factor."""
    gpu = efficient_gpu(machine)
    kernels = [(f"{name} {size} 0", name) for name in ("add", "cast") for size in (100_000_000, 200_000_000)]
    return [
        EfficiencyRow("fit", f"{name} by hand", "", (kernel := (one(text),)), factor * kernel[0].seconds(gpu), "test")
        for text, name in kernels
    ]


def test_the_fit_finds_what_made_the_rows() -> None:
    """Rows take twice as long as at the fractions of the profile: half of them, drawn a little to where it starts."""
    pytest.importorskip("scipy")
    machine = server()
    assert fitted_names(machine) == ["pointwise_dram_fraction", "copy_dram_fraction"]
    found = fit_efficiencies(machine, rows_of(machine, 2.0)).parameters
    assert found.pointwise_dram_fraction == pytest.approx(machine.cost_model["pointwise_dram_fraction"] / 2, rel=0.1)
    assert found.copy_dram_fraction == pytest.approx(machine.cost_model["copy_dram_fraction"] / 2, rel=0.1)
    assert found.cuda_flop_fraction == machine.cost_model["cuda_flop_fraction"]


def test_every_residual_is_printed_and_rows_are_left_out_by_shape_and_source() -> None:
    pytest.importorskip("scipy")
    machine = server()
    rows = rows_of(machine, 1.0)
    text = efficiency_report(machine, rows, efficient_gpu(machine))
    assert text.count("+0.0%") == len(rows) + 2 * 1
    left_out = left_out_report(machine, rows)
    assert [line.split(",")[1].strip()[:9] for line in left_out.splitlines() if line.startswith("left")] == [
        "by shape ",
        "by source",
    ]


def test_rows_are_read_kernel_by_kernel_and_step_by_step(tmp_path: Path) -> None:
    """A step is the sum of its kernels, each as often as it ran; both gradients of a convolution add up."""
    path = tmp_path / "toy.fit.csv"
    path.write_text(
        HEAD
        + "fit,alone conv,,1,conv 2x8x8x8 8x8x3x3 1 1 1,backward,float16,nchw,10,here\n"
        + "held_out,step,net 2,3,add 1000 0,forward,float16,nhwc,20,there\n"
        + "held_out,step,net 2,1,product 1x8x8x8,forward,float16,nhwc,,\n"
        + "held_out,step,net 2,1,attention 1000 1000,forward,float16,nhwc,,\n"
        + "held_out,step,net 4,1,conv 2x8x8x8 8x1x3x3 1 1 8 bias,forward,float16,nhwc,30,there\n"
    )
    alone, two, four = read_efficiency_rows(path)
    gpu = efficient_gpu(read_profile(A40))
    gradients = [one(alone.subject, phase) for phase in (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS)]
    assert alone.predicted_s(gpu) == sum(each.seconds(gpu) for each in gradients)
    assert [each.calls for each in two.kernels] == [3, 1, 1]
    assert two.predicted_s(gpu) == sum(each.seconds(gpu) for each in two.kernels)
    assert (two.subject, two.source, two.observed_s, len(four.kernels)) == ("net 2", "step", 20e-6, 1)
    assert four.relative_error(gpu) == four.predicted_s(gpu) / 30e-6 - 1


@pytest.mark.parametrize("path", FITTED, ids=lambda path: path.stem)
def test_what_a_profile_calls_fitted_has_rows_with_public_origins(path: Path) -> None:
    machine, table = read_profile(path), path.with_suffix(".fit.csv")
    assert bool(fitted_names(machine)) == table.exists()
    if table.exists():
        rows = read_efficiency_rows(table)
        assert all("/" in row.origin and row.observed_s > 0 for row in rows)
        assert {row.role for row in rows} <= {"fit", "held_out"}


def test_the_command_fits_a_card(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    monkeypatch.setattr(sys, "argv", ["fit", str(A40)])
    main()
    printed = capsys.readouterr().out
    assert "product 1x" in printed
    assert "fit       Vidur linear" in printed
    assert "tensor_flop_fraction" in printed
