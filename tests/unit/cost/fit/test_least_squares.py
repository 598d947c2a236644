"""The fits of cost models, their cross-validation and the command, on rows made by hand and on those of cards."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.toy import ROOT
from vdnnsim.cost.fit.__main__ import errors_by_group, main
from vdnnsim.cost.fit.efficiency import EFFICIENCY, EfficiencyKernel, gpu_of
from vdnnsim.cost.fit.least_squares import FitRow, FittedModel
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Figure, Origin, Server
from vdnnsim.units import ElementType

A40 = ROOT / "hw_profiles" / "a40.yaml"
NAMES = ("pointwise_dram_fraction", "copy_dram_fraction")


@dataclass(frozen=True)
class Seconds:
    """A kernel that takes as long as the rate says."""

    def seconds(self, rate: float) -> float:
        return rate


def row(group: str, fold: int, role: str = "fit", observed_s: float = 1.0) -> FitRow:
    kernels = ((Seconds(), 1),)
    return FitRow(role, group, f"{fold}", Phase.FORWARD, ElementType.FLOAT32, observed_s, kernels, "test", fold=fold)


@pytest.fixture
def a40() -> Server:
    """Two of its parameters are to be fitted."""
    figures = tuple(Figure(f"cost_model.{name}", "1", Origin.FITTED, "test") for name in NAMES)
    return replace(read_profile(A40), figures=figures)


def test_the_fit_finds_what_made_the_rows(a40: Server) -> None:
    """Rows of additions and casts take twice as long as stated: half of the rates, drawn a little to the start."""
    pytest.importorskip("scipy")
    gpu, rows = gpu_of(a40, {}), []
    for name in ("add", "cast"):
        for size in (100_000_000, 200_000_000):
            kernel = EfficiencyKernel(f"{name} {size} 0", Phase.FORWARD, ElementType.FLOAT16, channels_last=False)
            rows.append(replace(row(name, size, observed_s=2 * kernel.seconds(gpu)), kernels=((kernel, 1),)))
    found = EFFICIENCY.fit(a40, [*rows, replace(rows[0], role="other_version", observed_s=9.0)])
    assert found == pytest.approx({name: a40.cost_model[name] / 2 for name in NAMES}, rel=0.1)
    assert gpu_of(a40, found).parameters.cuda_flop_fraction == a40.cost_model["cuda_flop_fraction"]


def test_each_fitted_row_is_predicted_without_its_fold(a40: Server) -> None:
    """The fit is the largest fold that it saw; other roles take no part. Errors of 1 s are that number less one."""

    class Largest(FittedModel):
        fit: Callable[..., dict[str, float]] = lambda _, __, rows: {"rate": max(float(each.subject) for each in rows)}

    def rate(_: Server, found: Mapping[str, float]) -> float:
        return found["rate"]

    model = Largest(lambda _: (), rate, {}, {}, factor=1.0, ftol=1.0)
    rows = [row("a", 1), row("a", 2), row("b", 3), row("b", 3), row("b", 9, role="held_out")]
    errors = model.left_out_errors(a40, rows, lambda each: each.fold)
    assert [(each.fold, error) for each, error in errors] == [(1, 2.0), (2, 2.0), (3, 1.0), (3, 1.0)]
    assert errors_by_group(errors).reset_index().to_numpy().tolist() == [
        ["fit", "a", 2, 2.0, 2.0],
        ["fit", "b", 2, 1.0, 1.0],
    ]


@pytest.mark.parametrize("name", ["a40", pytest.param("titan_x_maxwell", marks=pytest.mark.slow)])
def test_the_command_prints_rows_groups_and_parameters(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    profile = A40.with_stem(name)
    arguments = ["--cross-validate"] if name == "a40" else [str(profile.parent / "hosts.fit.csv")]
    monkeypatch.setattr(sys, "argv", ["fit", str(profile), *arguments])
    main()
    printed = capsys.readouterr().out
    server = read_profile(profile)
    rows = (EFFICIENCY if name == "a40" else _maxwell()).read_rows(profile.with_suffix(".fit.csv"))
    assert all(each.subject in printed and each.group in printed for each in rows)
    assert "mean_absolute_error" in printed
    assert ("left out, by shape or network: 5." if name == "a40" else "a100_40gb: 36 rows") in printed
    assert any(f"{value:.4g}" in printed for value in server.cost_model.values())


def _maxwell() -> FittedModel:
    from vdnnsim.cost.fit.maxwell import MAXWELL

    return MAXWELL


def _profiles(kind: str) -> list[Path]:
    return [path for path in sorted(A40.parent.glob("*.yaml")) if f"kind: {kind}" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", _profiles("efficiency"), ids=lambda path: path.stem)
def test_what_a_profile_calls_fitted_has_rows_with_origins(path: Path) -> None:
    table = path.with_suffix(".fit.csv")
    fitted = {each.path for each in read_profile(path).figures if each.origin is Origin.FITTED}
    assert any(each.startswith("cost_model.") for each in fitted) == table.exists()
    if table.exists():
        rows = EFFICIENCY.read_rows(table)
        assert all("/" in each.origin or each.origin.startswith("own measurement, ") for each in rows)
        assert all(each.observed_s > 0 for each in rows)
        assert {each.role for each in rows} <= {"fit", "held_out"}
