import sys
from pathlib import Path

import pytest

from vdnnsim.cost.efficiency_fit import START
from vdnnsim.cost.fit import assumed, fit_parameters, machine_of, main
from vdnnsim.cost.fit_rows import FitRow, read_fit_rows
from vdnnsim.cost.parameters import CostParameters
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Server

PROFILES = Path(__file__).parents[3] / "hw_profiles"
TITAN_X = PROFILES / "titan_x_maxwell.yaml"


@pytest.fixture(scope="module")
def titan_x() -> Server:
    return read_profile(TITAN_X)


@pytest.fixture(scope="module")
def rows() -> tuple[FitRow, ...]:
    return read_fit_rows(TITAN_X.with_suffix(".fit.csv"))


def test_what_a_profile_assumes_is_held(titan_x: Server) -> None:
    assert assumed(titan_x) == {"kernel_overhead_s": 1e-5, "stream_dram_fraction": 0.75, "idle_tail_waves": 1.0}


@pytest.mark.slow
def test_a_refit_gives_the_parameters_of_the_profile(titan_x: Server, rows: tuple[FitRow, ...]) -> None:
    pytest.importorskip("scipy")
    assert {*assumed(titan_x), *START.maxwell} >= titan_x.cost_model.keys()
    refitted = fit_parameters(titan_x, rows)
    stated = CostParameters.from_mapping(titan_x.name, titan_x.cost_model)
    for name in titan_x.cost_model:
        assert getattr(refitted, name) == pytest.approx(getattr(stated, name), rel=0.01), name


def test_every_row_has_a_public_origin_and_networks_are_held_out(rows: tuple[FitRow, ...]) -> None:
    assert all(row.origin.startswith(("soumith/convnet-benchmarks ", "baidu-research/DeepBench ")) for row in rows)
    assert {row.subject for row in rows if row.role == "held_out"} == {"overfeat", "googlenet"}
    assert not {row.subject for row in rows if row.role == "fit"} & {"overfeat", "googlenet"}


def test_rows_of_another_library_version_are_not_fitted(titan_x: Server, rows: tuple[FitRow, ...]) -> None:
    """The model is of cuDNN 4: without the rows of cuDNN R3 the fit is the same to the last digit."""
    pytest.importorskip("scipy")
    others = [row for row in rows if row.role == "other_version"]
    assert {(row.group, row.algorithms) for row in others} == {("layer R3", "fastest_without_tiling")}
    few = [row for row in rows if row.group == "network R4"]
    assert fit_parameters(titan_x, [*few, *others]) == fit_parameters(titan_x, few)


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
    machine = machine_of(titan_x, CostParameters.from_mapping(titan_x.name, titan_x.cost_model))
    errors = [abs(row.relative_error(machine)) for row in rows if (row.role, row.group) == (role, group)]
    assert sum(errors) / len(errors) < bound


@pytest.mark.slow
def test_the_command_prints_rows_groups_and_parameters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    monkeypatch.setattr(sys, "argv", ["fit", str(TITAN_X)])
    main()
    printed = capsys.readouterr().out
    assert "held_out      network R4            overfeat     forward" in printed
    assert "held_out      network R4" in printed.split("mean absolute error")[1]
    assert "fft_dram_fraction" in printed
